__global__ void count_positive(int n, const float* x, int* count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int found = __syncthreads_count(i < n && x[i] > 0);
    if (threadIdx.x == 0) atomicAdd(count, found);
}
