// D = f(gate, up), where gate and up are the sums of two products, complete and scaled. It follows kernels
// that can't apply a function of pairs themselves. Each thread computes one element, and neighbouring
// threads neighbours in a row of D.
//
// Macros: real, the type of the sums; OUTPUT, that of D's elements (convert.cuh); PAIRS, 1; OVERLAP as in
// launch.cuh.
#include "fused.cuh"
#include "launch.cuh"
#include "matrix.cuh"

constexpr int THREADS = 256;

struct PairSums {
    const real* gate;
    const real* up;
    long long pitch;       // elements from one row of the sums to the next, also from matrix to matrix
    unsigned column_step;  // elements from one column of gate, and of up, to the next
    unsigned m, n, batch;
    BatchedMatrix<OUTPUT> d;
};

extern "C" __global__ void __launch_bounds__(THREADS)
pair_sums(const __grid_constant__ PairSums p FUSED_PARAMETER) {
    begin_launch();
    const unsigned column = blockIdx.x * THREADS + threadIdx.x;
    if (column >= p.n) return;
    const size_t lines = (size_t)p.batch * p.m;
    for (size_t line = blockIdx.y; line < lines; line += gridDim.y) {
        const size_t at = line * p.pitch + (size_t)column * p.column_step;
        const unsigned row = line % p.m, batch = line / p.m;
        const real value = FUSED(p.gate[at], p.up[at], batch, row, column);
        *p.d[batch].at(row, column) = from_float<OUTPUT>(value);
    }
}
