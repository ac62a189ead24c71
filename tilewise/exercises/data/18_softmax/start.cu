// The sum, or the largest, of a value of each of the block's 128 threads; every thread gets it.
__device__ float reduced(float value, bool is_sum)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = value;
    __syncthreads();
    // TODO: the tree
    value = s[0];
    __syncthreads();  // everybody has read before s is used again
    return value;
}

// y = softmax of the block's row of n elements.
__global__ void softmax(int n, const float* x, float* y)
{
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    float largest = -INFINITY;
    for (int i = threadIdx.x; i < n; i += 128) largest = fmaxf(largest, x[i]);
    largest = reduced(largest, false);
    float sum = 0;
    // TODO: the sum of expf(x[i] - largest), then the quotients
    for (int i = threadIdx.x; i < n; i += 128) y[i] = 0;
}
