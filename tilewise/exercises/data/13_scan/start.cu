// Each block: y[i] = x[0] + ... + x[i] of one row of n elements, n <= 256.
__global__ void scan(int n, const float* x, float* y)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    s[t] = t < n ? x[t] : 0;
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        // TODO: read the element d places before, then, behind a barrier, add it to this one
    }
    if (t < n) y[t] = s[t];
}
