__global__ void square(int n, const float* x, float* y)
{
    int first = blockIdx.x * blockDim.x + threadIdx.x;
    int stride = gridDim.x * blockDim.x;
    for (int i = first; i < n; i += stride) {
        y[i] = x[i] * x[i];
    }
}
