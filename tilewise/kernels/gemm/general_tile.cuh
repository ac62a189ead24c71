// Tiles in shared memory of any two matrices, whatever their strides, of which a thread multiplies 4 x 4
// elements.
//
// Macros: INPUT, the elements' type (convert.cuh); ACCUMULATE, the type of the accumulators.
#pragma once
#include "../ptx/convert.cuh"
#include "matrix.cuh"

constexpr int BLOCK = 64, BLOCK_K = 16, EDGE = 16, THREADS = EDGE * EDGE, EACH = BLOCK / EDGE;

typedef ACCUMULATE Tile[BLOCK_K][BLOCK + 1];  // padded against bank conflicts

// Loads the tile at (line, step) of an operand that is seen as lines (rows of A, columns of B) of k
// elements. Neighbouring threads read neighbouring elements, K-major or MN-major.
__device__ inline void load(Tile& tile, const INPUT* data, long long line_stride,
                            long long step_stride, long long line, long long lines,
                            long long step, long long steps) {
    const bool k_major = step_stride <= line_stride;
    const int thread = threadIdx.x;
    #pragma unroll
    for (int i = 0; i < BLOCK * BLOCK_K / THREADS; ++i) {
        const int index = thread + i * THREADS;
        const int l = k_major ? index / BLOCK_K : index % BLOCK;
        const int s = k_major ? index % BLOCK_K : index / BLOCK;
        const bool inside = line + l < lines && step + s < steps;
        tile[s][l] = inside
            ? to_float(data[(line + l) * line_stride + (step + s) * step_stride])
            : (ACCUMULATE)0;
    }
}
