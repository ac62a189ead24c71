__global__ void histogram(int n, const int* x, int* counts)
{
    // Two histograms a block, so that fewer threads meet.
    __shared__ int own[2][64];
    own[threadIdx.x / 64][threadIdx.x % 64] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += 512) atomicAdd(&own[threadIdx.x % 2][x[i]], 1);
    __syncthreads();
    int t = threadIdx.x;
    if (t < 64) atomicAdd(&counts[t], own[0][t] + own[1][t]);
}
