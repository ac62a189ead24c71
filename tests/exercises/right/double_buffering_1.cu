__global__ void product(int m, int n, int k, const float* a, const float* b, float* c)
{
    __shared__ float tiles[2][2][16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float sum = 0;
    // The barrier comes first: behind it this tile is whole, and the other one is no longer read.
    for (int phase = 0; phase * 16 < k; ++phase) {
        int pa = phase * 16 + x, pb = phase * 16 + y;
        tiles[phase & 1][0][y][x] = row < m && pa < k ? a[row * k + pa] : 0.0f;
        tiles[phase & 1][1][y][x] = col < n && pb < k ? b[pb * n + col] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; ++i) sum += tiles[phase & 1][0][y][i] * tiles[phase & 1][1][i][x];
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
