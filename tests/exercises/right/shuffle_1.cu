__device__ float warp_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    x += __shfl_xor_sync(~0u, x, 2);
    x += __shfl_xor_sync(~0u, x, 4);
    x += __shfl_xor_sync(~0u, x, 8);
    return x + __shfl_xor_sync(~0u, x, 16);
}

__global__ void warp_sums(int n, const float* x, float* y)
{
    __shared__ float s[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float mine = warp_sum(i < n ? x[i] : 0.0f);
    if (threadIdx.x % 32 == 31) s[threadIdx.x >> 5] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        float all = warp_sum(threadIdx.x < 8 ? s[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) y[blockIdx.x] = all;
    }
}
