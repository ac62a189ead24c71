#define TILE 32
#define ROWS 8

// y = x^T. Right and coalesced, but a warp that reads a column of the tile takes 32 turns.
__global__ void transpose(int m, int n, const float* x, float* y)
{
    __shared__ float tile[TILE][TILE];
    int col = blockIdx.x * TILE + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += ROWS) {
        int row = blockIdx.y * TILE + i;
        if (row < m && col < n) tile[i][threadIdx.x] = x[row * n + col];
    }
    __syncthreads();
    int to = blockIdx.y * TILE + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += ROWS) {
        int row = blockIdx.x * TILE + i;
        if (row < n && to < m) y[row * m + to] = tile[threadIdx.x][i];
    }
}
