__global__ void square(int n, const float* x, float* y)
{
    // From the end down.
    int threads = gridDim.x * blockDim.x;
    for (int i = n - 1 - (int)(blockIdx.x * blockDim.x + threadIdx.x); i >= 0; i -= threads) y[i] = x[i] * x[i];
}
