__global__ void maxima(int n, const float* x, float* y)
{
    __shared__ float s[128];
    const unsigned t = threadIdx.x;
    x += blockIdx.x * n;
    s[t] = x[t < n ? t : 0];  // past the end, the first element again
    for (unsigned width = 64; width; width >>= 1) {
        __syncthreads();
        float other = t < width ? s[t + width] : s[t];
        if (t < width && other > s[t]) s[t] = other;
    }
    if (t == 0) y[blockIdx.x] = *s;
}
