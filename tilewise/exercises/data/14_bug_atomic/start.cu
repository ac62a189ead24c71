// Adds to *count how many elements of x are above 0. It has a bug.
__global__ void count_positive(int n, const float* x, int* count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) {
        *count += 1;
    }
}
