// y[row] = the largest of n elements of the block's row, 1 <= n <= 128. It has two bugs.
__global__ void maxima(int n, const float* x, float* y)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = t < n ? x[blockIdx.x * n + t] : 0;
    __syncthreads();
    for (int width = 64; width > 0; width /= 2) {
        if (t < width) {
            s[t] = fmaxf(s[t], s[t + width]);
            __syncthreads();
        }
    }
    if (t == 0) y[blockIdx.x] = s[0];
}
