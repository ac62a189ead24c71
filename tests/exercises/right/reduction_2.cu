__global__ void block_sums(int n, const float* x, float* y)
{
    // Each warp sums its own 32, then the first one the eight sums.
    __shared__ float s[8];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    float sum = i < n ? x[i] : 0;
    for (int by = 1; by < 32; by *= 2) sum += __shfl_xor_sync(~0u, sum, by);
    if (t % 32 == 0) s[t / 32] = sum;
    __syncthreads();
    if (t == 0) {
        for (int w = 1; w < 8; ++w) sum += s[w];
        y[blockIdx.x] = sum;
    }
}
