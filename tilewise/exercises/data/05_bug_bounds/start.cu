// y[i] = x[i - 1] + x[i] + x[i + 1], where what lies outside counts as 0. It has two bugs.
__global__ void neighbours(int n, const float* x, float* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) {
        float sum = x[i];
        if (i > 0) sum += x[i - 1];
        if (i < n) sum += x[i + 1];
        y[i] = sum;
    }
}
