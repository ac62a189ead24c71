__global__ void warp_sums(int n, const float* x, float* y)
{
    __shared__ float of_warps[8];
    int t = threadIdx.x;
    int i = blockIdx.x * 256 + t;
    float sum = i < n ? x[i] : 0;
    for (int by = 16; by > 0; by /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, by);
    }
    if (t % 32 == 0) of_warps[t / 32] = sum;
    __syncthreads();
    if (t == 0) {
        for (int warp = 1; warp < 8; ++warp) {
            sum += of_warps[warp];
        }
        y[blockIdx.x] = sum;
    }
}
