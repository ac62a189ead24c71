__global__ void product(int m, int n, int k, const float* a, const float* b, float* c)
{
    __shared__ float sa[32 * 8], sb[8 * 32];
    int tx = threadIdx.x, ty = threadIdx.y, t = ty * 8 + tx;
    float sum[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) sum[i] = 0;
    int phases = (k + 7) / 8;
    while (phases-- > 0) {  // from the end of k to its beginning
        int p = phases * 8;
        for (int i = t; i < 256; i += 64) {
            int row = blockIdx.y * 32 + i / 8, deep = p + i % 8;
            sa[i] = row < m && deep < k ? a[row * k + deep] : 0;
            deep = p + i / 32;
            int col = blockIdx.x * 32 + i % 32;
            sb[i] = deep < k && col < n ? b[deep * n + col] : 0;
        }
        __syncthreads();
        for (int i = 0; i < 8; ++i) {
            float v[4];
#pragma unroll
            for (int x = 0; x < 4; ++x) v[x] = sb[i * 32 + tx + 8 * x];
#pragma unroll
            for (int y = 0; y < 4; ++y) {
                float u = sa[(ty + 8 * y) * 8 + i];
#pragma unroll
                for (int x = 0; x < 4; ++x) sum[4 * y + x] = fmaf(u, v[x], sum[4 * y + x]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        int row = blockIdx.y * 32 + ty + i / 4 * 8, col = blockIdx.x * 32 + tx + i % 4 * 8;
        if (row < m && col < n) c[row * n + col] = sum[i];
    }
}
