__global__ void scale_rows(int m, int n, const float* s, const float* x, float* y)
{
    unsigned i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= m) return;
    unsigned at = i * n + blockIdx.x * blockDim.x + threadIdx.x;
    if (at < (i + 1) * n) y[at] = x[at] * s[i];
}
