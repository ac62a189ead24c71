#define THREADS 128
#define LONGEST 1024

__global__ void __launch_bounds__(THREADS) below_maximum(int n, const float* x, float* y)
{
    __shared__ float row[LONGEST];
    __shared__ float largest[THREADS];
    int t = threadIdx.x;
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    float own = -INFINITY;
    for (int i = t; i < n; i += THREADS) {
        row[i] = x[i];
        own = fmaxf(own, row[i]);
    }
    largest[t] = own;
    __syncthreads();
    for (int width = THREADS / 2; width > 0; width /= 2) {
        if (t < width) largest[t] = fmaxf(largest[t], largest[t + width]);
        __syncthreads();
    }
    for (int i = t; i < n; i += THREADS) y[i] = row[i] - largest[0];
}
