__global__ void scan(int n, const float* x, float* y)
{
    __shared__ float s[2][256];
    int t = threadIdx.x, now = 0;
    const size_t row = (size_t)blockIdx.x * n;
    s[0][t] = t < n ? x[row + t] : 0.0f;
    for (int d = 1; d < n; d <<= 1) {
        __syncthreads();
        s[1 - now][t] = s[now][t] + (t < d ? 0.0f : s[now][t - d]);
        now = 1 - now;
    }
    if (t < n) y[row + t] = s[now][t];
}
