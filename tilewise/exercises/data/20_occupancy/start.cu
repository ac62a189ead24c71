#define THREADS 32
#define LONGEST 12000  // elements of a row

// y = x - the largest of the row, for the block's row of n elements, n <= 1024. Right, with few warps.
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
