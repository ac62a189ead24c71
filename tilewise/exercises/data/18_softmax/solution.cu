__device__ float reduced(float value, bool is_sum)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = value;
    __syncthreads();
    for (int width = 64; width > 0; width /= 2) {
        if (t < width) s[t] = is_sum ? s[t] + s[t + width] : fmaxf(s[t], s[t + width]);
        __syncthreads();
    }
    value = s[0];
    __syncthreads();
    return value;
}

__global__ void softmax(int n, const float* x, float* y)
{
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    float largest = -INFINITY;
    for (int i = threadIdx.x; i < n; i += 128) largest = fmaxf(largest, x[i]);
    largest = reduced(largest, false);
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 128) sum += expf(x[i] - largest);
    sum = reduced(sum, true);
    for (int i = threadIdx.x; i < n; i += 128) y[i] = expf(x[i] - largest) / sum;
}
