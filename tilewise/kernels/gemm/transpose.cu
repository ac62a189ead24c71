// Transposes a batch of matrices into a copy whose rows are 128-byte aligned: a block for each
// square of EDGE x EDGE elements along x. Warps read rows of the square and write its columns, so
// both are coalesced.
//
// Macros: real, the elements' type; OVERLAP as in launch.cuh.
#include "launch.cuh"

constexpr int EDGE = 64, THREADS = 256, WARPS = THREADS / 32;
constexpr int PIECE = 16 / sizeof(real);  // elements: the copy's rows end with zeros up to a multiple

struct Transposition {
    const real* source;
    real* copy;
    long long row_stride, batch_stride;  // of the source, elements; its columns are neighbours
    unsigned rows, columns, batch;       // of the source
    unsigned pitch;                      // of the copy: a multiple of PIECE
};

extern "C" __global__ void __launch_bounds__(THREADS)
transpose(const __grid_constant__ Transposition p) {
    __shared__ real square[EDGE][EDGE + 1];  // padded against bank conflicts
    const unsigned across = (p.columns - 1) / EDGE + 1, down = (p.rows - 1) / EDGE + 1;
    const unsigned tile = blockIdx.x % (across * down), matrix = blockIdx.x / (across * down);
    const unsigned top = tile / across * EDGE, left = tile % across * EDGE;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const real* source = p.source + matrix * p.batch_stride;
    begin_launch();
    #pragma unroll
    for (int i = 0; i < EDGE; i += WARPS)
        #pragma unroll
        for (int j = 0; j < EDGE; j += 32) {
            const unsigned row = top + warp + i, column = left + lane + j;
            const bool inside = row < p.rows && column < p.columns;
            square[warp + i][lane + j] = inside ? source[row * p.row_stride + column] : real(0);
        }
    __syncthreads();
    real* copy = p.copy + (size_t)matrix * p.columns * p.pitch;
    const unsigned end = (p.rows + PIECE - 1) / PIECE * PIECE;
    #pragma unroll
    for (int i = 0; i < EDGE; i += WARPS)
        #pragma unroll
        for (int j = 0; j < EDGE; j += 32) {
            const unsigned row = left + warp + i, column = top + lane + j;
            if (row < p.columns && column < end)
                copy[(size_t)row * p.pitch + column] = square[lane + j][warp + i];
        }
}
