__global__ void product(int m, int n, int k, const float* a, const float* b, float* c)
{
    // Four neighbours a thread in both directions, and A's tile transposed.
    __shared__ float at[8][36];
    __shared__ __align__(16) float sb[8][32];
    const int t = threadIdx.y * 8 + threadIdx.x, top = blockIdx.y * 32, left = blockIdx.x * 32;
    const int r = threadIdx.y * 4, q = threadIdx.x * 4;
    float sum[4][4] = {};
    for (int p = 0; p < k; p += 8) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            int i = t + 64 * j;
            at[i % 8][i / 8] = top + i / 8 < m && p + i % 8 < k ? a[(top + i / 8) * k + p + i % 8] : 0.0f;
            sb[i / 32][i % 32] = p + i / 32 < k && left + i % 32 < n ? b[(p + i / 32) * n + left + i % 32] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; ++i)
            for (int y = 0; y < 4; ++y)
                for (int x = 0; x < 4; ++x) sum[y][x] += at[i][r + y] * sb[i][q + x];
        __syncthreads();
    }
    for (int y = 0; y < 4; ++y)
        for (int x = 0; x < 4; ++x)
            if (top + r + y < m && left + q + x < n) c[(top + r + y) * n + left + q + x] = sum[y][x];
}
