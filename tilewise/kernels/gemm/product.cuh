// The argument of simt.cu, dmma.cu and mma.cu. Blocks along x are for the tiles of D, of one matrix of the
// batch after another; blocks along y divide k (split-K).
//
// Macro: OVERLAP as in launch.cuh.
#include "matrix.cuh"
#include "launch.cuh"
#include "tile_order.cuh"

template <typename T> struct Operand {
    const T* pointer;
    long long pitch, batch_stride;  // elements
    unsigned count;  // of lines that may be read; up to a multiple of 16 bytes, more than D has
};

template <typename In, typename Out, typename Real> struct Product {
    Operand<In> a, b;
    BatchedMatrix<const Out> c;
    BatchedMatrix<Out> d;
    long long part_stride;  // from the partial sums of one part of k to the next
    unsigned m, n, k;
    unsigned columns;  // of D: n; of partial sums, n up to a multiple of 16 bytes
    unsigned part_k;  // elements of k of each part
    unsigned group;   // rows of tiles that run together, to share in L2
    Real alpha, beta;
};

// A block's tile of D and its part of k.
struct Place {
    unsigned batch, part, top, left, begin, end;
    template <typename P> __device__ Place(const P& p, unsigned block_m, unsigned block_n) {
        const unsigned down = (p.m - 1) / block_m + 1, across = (p.n - 1) / block_n + 1;
        const uint2 tile = tile_of(blockIdx.x % (down * across), down, across, p.group);
        batch = blockIdx.x / (down * across), part = blockIdx.y;
        top = tile.x * block_m, left = tile.y * block_n;
        begin = part * p.part_k, end = part + 1 < gridDim.y ? begin + p.part_k : p.k;
    }
};
