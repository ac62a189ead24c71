#define TILE 16

// C = A*B: A is m x k, B is k x n, C is m x n, row by row.
__global__ void product(int m, int n, int k, const float* a, const float* b, float* c)
{
    __shared__ float sa[TILE][TILE];
    __shared__ float sb[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty;
    int col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int p = 0; p < k; p += TILE) {
        sa[ty][tx] = 0;  // TODO: element (row, p + tx) of A, or 0 past the edge
        sb[ty][tx] = 0;  // TODO: element (p + ty, col) of B, or 0 past the edge
        __syncthreads();
        // TODO: add up sa's row ty times sb's column tx
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
