__global__ void neighbours(int n, const float* x, float* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float sum = x[i];
        if (i > 0) sum += x[i - 1];
        if (i < n - 1) sum += x[i + 1];
        y[i] = sum;
    }
}
