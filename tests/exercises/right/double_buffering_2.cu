__global__ void product(int m, int n, int k, const float* a, const float* b, float* c)
{
    __shared__ float s[4][256];
    int x = threadIdx.x, y = threadIdx.y, t = y * 16 + x;
    int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float *ra = s[0], *rb = s[1], *wa = s[2], *wb = s[3], sum = 0;
    ra[t] = row < m && x < k ? a[row * k + x] : 0;
    rb[t] = col < n && y < k ? b[y * n + col] : 0;
    for (int p = 16; p < k + 16; p += 16) {
        __syncthreads();
        if (p < k) {
            wa[t] = row < m && p + x < k ? a[row * k + p + x] : 0;
            wb[t] = col < n && p + y < k ? b[(p + y) * n + col] : 0;
        }
        for (int i = 15; i >= 0; --i) sum += ra[y * 16 + i] * rb[i * 16 + x];
        float* other = ra; ra = wa; wa = other;
        other = rb; rb = wb; wb = other;
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
