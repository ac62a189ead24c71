__global__ void block_sums(int n, const float* x, float* y)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    int i = blockIdx.x * 256 + t;
    s[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int width = 128; width > 0; width /= 2) {
        if (t < width) s[t] += s[t + width];
        __syncthreads();
    }
    if (t == 0) {
        y[blockIdx.x] = s[0];
    }
}
