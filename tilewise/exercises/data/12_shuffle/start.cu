// y[blockIdx.x] = the sum of the block's elements of x, 256 of them, or fewer in the last block.
__global__ void warp_sums(int n, const float* x, float* y)
{
    __shared__ float of_warps[8];
    int t = threadIdx.x;
    int i = blockIdx.x * 256 + t;
    float sum = i < n ? x[i] : 0;
    // TODO: add up the warp's 32 values
    if (t % 32 == 0) of_warps[t / 32] = sum;
    __syncthreads();
    if (t == 0) {
        // TODO: add up the sums of the warps
        y[blockIdx.x] = sum;
    }
}
