// Transpose through a tile in shared memory: global memory is read and written along rows, and
// the elements of a tile's column all lie in one bank (of doubles, in two), so a warp that reads
// them is served in turn. transpose_padded.cu is the same without the conflicts.

#ifndef real
#define real float
#endif
#define TILE 32
#define ROWS 8  // of threads a block; each thread moves TILE / ROWS elements

// out[column][row] = in[row][column]; ldi and ldo are elements from one row to the next.
extern "C" __global__ void transpose_unpadded(
    int rows, int columns, const real* in, int ldi, real* out, int ldo)
{
    __shared__ real tile[TILE][TILE];
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
