#define BINS 64

__global__ void histogram(int n, const int* x, int* counts)
{
    __shared__ int own[BINS];
    if (threadIdx.x < BINS) own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&own[x[i]], 1);
    }
    __syncthreads();
    if (threadIdx.x < BINS) atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}
