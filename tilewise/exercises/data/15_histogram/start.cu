#define BINS 64

// Adds to counts[v], for each v from 0 to 63, how many elements of x are v.
__global__ void histogram(int n, const int* x, int* counts)
{
    __shared__ int own[BINS];
    // TODO: the block's own counts begin with 0
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        // TODO: count in shared memory
    }
    // TODO: add them to the counts in global memory
}
