// The argument of the thin kernels of float and double, and the pieces by which they read.
//
// Macros: real, the elements' type; WIDTH and FEW_WIDTH, elements of ``many`` and of ``few`` that
// are read at once, 16 bytes or 1.
#include "../ptx/memory.cuh"

struct Product {
    const real *many, *few, *c;
    real* d;
    long long many_pitch, many_step;         // elements from line to line, and from matrix to matrix
    long long few_pitch, few_along, few_step;  // and along k
    long long c_many, c_few, c_step;         // from line to line of ``many``, and of ``few``
    long long d_many, d_few, d_step;
    long long part_stride;  // from one part's sums to the next
    unsigned rows, few_rows, k, batch;
    unsigned stored;  // rows: in the rows of a part's sums up to whole pieces
    unsigned part_k;  // of k, what each of the blocks has that divide it: whole steps
    real alpha, beta;
};

struct __align__(WIDTH * sizeof(real)) Piece { real x[WIDTH]; };
struct __align__(FEW_WIDTH * sizeof(real)) FewPiece { real x[FEW_WIDTH]; };

// A piece that nobody reads again: 16 bytes bypass L1, which stays free for ``few``.
__device__ inline Piece load_once(const real* from) {
    if constexpr (WIDTH == 1) return Piece{*from};
    else {
        const longlong2 bits = ld_global_no_allocate(from);
        return *(const Piece*)&bits;
    }
}
