__global__ void square(int n, const float* x, float* y)
{
    unsigned i = threadIdx.x + blockIdx.x * 128;
    while (i < n) {
        float value = x[i];
        y[i] = value * value;
        i += 512;
    }
}
