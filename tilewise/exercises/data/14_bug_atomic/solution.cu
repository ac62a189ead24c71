__global__ void count_positive(int n, const float* x, int* count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) {
        atomicAdd(count, 1);
    }
}
