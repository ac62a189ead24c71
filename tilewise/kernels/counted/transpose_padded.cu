// Transpose through a tile in shared memory, whose rows are one element longer than they need be:
// so the elements of a column lie in different banks, and a warp reads them without conflicts.
// transpose_unpadded.cu is the same without that element.

#ifndef real
#define real float
#endif
#define TILE 32
#define ROWS 8  // of threads a block; each thread moves TILE / ROWS elements

// out[column][row] = in[row][column]; ldi and ldo are elements from one row to the next.
extern "C" __global__ void transpose_padded(
    int rows, int columns, const real* in, int ldi, real* out, int ldo)
{
    __shared__ real tile[TILE][TILE + 1];
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += ROWS) {
        if (row + i < rows && column < columns) {
            tile[threadIdx.y + i][threadIdx.x] = in[(size_t)(row + i) * ldi + column];
        }
    }
    __syncthreads();
    column = blockIdx.y * TILE + threadIdx.x;
    row = blockIdx.x * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += ROWS) {
        if (row + i < columns && column < rows) {
            out[(size_t)(row + i) * ldo + column] = tile[threadIdx.x][threadIdx.y + i];
        }
    }
}
