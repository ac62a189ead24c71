__device__ float warp_max(float x)
{
    for (int by = 16; by; by /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, by));
    return x;
}

__device__ float warp_sum(float x)
{
    for (int by = 16; by; by /= 2) x += __shfl_xor_sync(~0u, x, by);
    return x;
}

__global__ void softmax(int n, const float* x, float* y)
{
    __shared__ float maxima[4], sums[4];
    int t = threadIdx.x, row = blockIdx.x * n;
    float m = -INFINITY, s = 0;
    for (int i = t; i < n; i += 128) m = fmaxf(m, x[row + i]);
    m = warp_max(m);
    if (t % 32 == 0) maxima[t / 32] = m;
    __syncthreads();
    m = fmaxf(fmaxf(maxima[0], maxima[1]), fmaxf(maxima[2], maxima[3]));
    for (int i = t; i < n; i += 128) s += expf(x[row + i] - m);
    s = warp_sum(s);
    if (t % 32 == 0) sums[t / 32] = s;
    __syncthreads();
    s = sums[0] + sums[1] + sums[2] + sums[3];
    for (int i = t; i < n; i += 128) y[row + i] = expf(x[row + i] - m) / s;
}
