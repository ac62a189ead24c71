__global__ void scan(int n, const float* x, float* y)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    s[t] = t < n ? x[t] : 0;
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        float before = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += before;
        __syncthreads();
    }
    if (t < n) y[t] = s[t];
}
