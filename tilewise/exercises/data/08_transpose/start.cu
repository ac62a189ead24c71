#define TILE 32
#define ROWS 8  // of threads: each thread takes four elements, ROWS rows apart

// y = x^T: x is m x n, y is n x m, both row by row.
__global__ void transpose(int m, int n, const float* x, float* y)
{
    __shared__ float tile[TILE][TILE];
    int col = blockIdx.x * TILE + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += ROWS) {
        int row = blockIdx.y * TILE + i;
        if (row < m && col < n) tile[i][threadIdx.x] = x[row * n + col];
    }
    __syncthreads();
    // TODO: row and column of y, and which element of the tile belongs there
}
