struct __align__(16) Four { float e[4]; };

__global__ void axpy(int n, float a, const float* x, float* y)
{
    unsigned whole = n / 4, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < whole) {
        Four from = ((const Four*)x)[i], to = ((const Four*)y)[i];
        for (int j = 0; j < 4; ++j) to.e[j] = a * from.e[j] + to.e[j];
        ((Four*)y)[i] = to;
    } else if (i == whole) {  // the next thread
        for (int j = 4 * whole; j < n; ++j) y[j] = a * x[j] + y[j];
    }
}
