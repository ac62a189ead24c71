// D = f(acc, operands), element by element, where acc is a matrix in memory. It computes the derivative of an
// epilogue: acc is a gradient, and operands are other gradients and what the forward pass stored. fused.cuh
// loads operands and stores further results of f. Each thread computes COLUMNS elements of a row, THREADS
// apart, so that accesses are coalesced and a thread has several loads in flight.
//
// Macros: real, in which f is computed; INPUT and OUTPUT, the types of acc's elements and D's (convert.cuh);
// COLUMNS.
#include "fused.cuh"

constexpr int THREADS = 256;

struct Pointwise {
    const INPUT* acc;
    OUTPUT* d;
    unsigned m, n, batch;  // acc and D are row-major, without gaps between rows
};

extern "C" __global__ void __launch_bounds__(THREADS)
pointwise(const __grid_constant__ Pointwise p FUSED_PARAMETER) {
    const unsigned first = blockIdx.x * (THREADS * COLUMNS) + threadIdx.x;
    const size_t lines = (size_t)p.batch * p.m;
    for (size_t line = blockIdx.y; line < lines; line += gridDim.y) {
        const unsigned row = line % p.m, batch = line / p.m;
        const size_t at = line * p.n;
        real acc[COLUMNS];
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i) {
            const unsigned column = first + i * THREADS;
            if (column < p.n) acc[i] = to_float(p.acc[at + column]);
        }
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i) {
            const unsigned column = first + i * THREADS;
            if (column < p.n) p.d[at + column] = from_float<OUTPUT>(FUSED(acc[i], batch, row, column));
        }
    }
}
