__global__ void block_sums(int n, const float* x, float* y)
{
    __shared__ float s[128];
    unsigned t = threadIdx.x, i = blockIdx.x * 256 + t;
    float sum = i < n ? x[i] : 0.0f;
    for (unsigned width = 128; width; width >>= 1) {
        if (t >= width && t < 2 * width) s[t - width] = sum;  // the upper half hands over
        __syncthreads();
        if (t < width) sum += s[t];
        if (width > 1) __syncthreads();
        if (width == 32) break;
    }
    for (int by = 16; by > 0; by /= 2) sum += __shfl_down_sync(0xffffffff, sum, by);
    if (!t) y[blockIdx.x] = sum;
}
