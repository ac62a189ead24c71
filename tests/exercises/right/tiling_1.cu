__global__ void product(int m, int n, int k, const float* a, const float* b, float* c)
{
    __shared__ float tiles[2][16 * 16];
    unsigned x = threadIdx.x, y = threadIdx.y, t = y * 16 + x;
    unsigned row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    bool in_rows = row < m, in_columns = col < n;
    const float* pa = a + (size_t)row * k + x;
    const float* pb = b + (size_t)y * n + col;
    float sum = 0;
    for (int left = k; left > 0; left -= 16) {
        tiles[0][t] = in_rows && (int)x < left ? *pa : 0.0f;
        tiles[1][t] = in_columns && (int)y < left ? *pb : 0.0f;
        pa += 16;
        pb += 16 * n;
        __syncthreads();
#pragma unroll
        for (int i = 15; i >= 0; --i) sum = fmaf(tiles[0][y * 16 + i], tiles[1][i * 16 + x], sum);
        __syncthreads();
    }
    if (in_rows & in_columns) c[(size_t)row * n + col] = sum;
}
