// y[i] = x[i] * x[i], by a grid of 4 blocks of 128 threads, whatever n is.
__global__ void square(int n, const float* x, float* y)
{
    int first = blockIdx.x * blockDim.x + threadIdx.x;
    int stride = n;  // TODO: how many threads does the grid have?
    for (int i = first; i < n; i += stride) {
        y[i] = 0;  // TODO
    }
}
