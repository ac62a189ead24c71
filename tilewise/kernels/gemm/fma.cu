// D = alpha A B + beta C without tensor cores, batched: fma.cuh's tiles, a block for each along x,
// of one matrix of the batch after another. Blocks along y divide k; each stores sums of its own,
// which fma_sum.cu adds up.
//
// Macros: those of fma.cuh; BLOCKS of a multiprocessor, at least; A_ALONG_K, B_ALONG_K, 1 where k is
// the contiguous dimension and 0 where the other is; A_WIDTH, B_WIDTH, elements of a copy; OVERLAP,
// 1 if the launch may begin before the kernel ahead of it has ended.
#if BULK
#include "fma_bulk.cuh"
#else
#include "fma.cuh"
#endif

struct Operand {
    const real* pointer;
    long long pitch, batch_stride;  // elements
    unsigned count;  // of lines that may be read: with whole pieces more than D has
};

struct Product {
    Operand a, b;
    Batch<const real> c;
    Batch<real> d;
    long long part_stride;  // from one part's sums to the next
    unsigned m, n, k;
    unsigned columns;  // of D: n, or with whole pieces in the rows of a part's sums more
    unsigned part_k;  // of k, what each of the blocks has that divide it
    unsigned group;   // rows of tiles whose blocks run together
    real alpha, beta;
};

#if BULK
typedef BulkTile<BLOCK_M, A_ALONG_K, LANES_M> TileA;
typedef BulkTile<BLOCK_N, B_ALONG_K, LANES_N> TileB;
constexpr int SHARED = STAGES * BULK_STAGE<TileA, TileB>, ALIGNED = SWIZZLED;
#else
typedef Copier<BLOCK_M, A_ALONG_K, A_WIDTH, LANES_M> TileA;
typedef Copier<BLOCK_N, B_ALONG_K, B_WIDTH, LANES_N> TileB;
constexpr int SHARED = STAGES * STAGE<TileA, TileB>, ALIGNED = 16;
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
gemm_fma(const __grid_constant__ Product p
#if BULK
         , const __grid_constant__ TensorMap of_a, const __grid_constant__ TensorMap of_b
#endif
) {
    __shared__ __align__(ALIGNED) real shared[SHARED];
#if OVERLAP
    // PTX ISA 9.7.13.13, "griddepcontrol".
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
    const unsigned down = (p.m - 1) / BLOCK_M + 1, across = (p.n - 1) / BLOCK_N + 1;
    const unsigned batch = blockIdx.x / (down * across), part = blockIdx.y;
    const uint2 tile = tile_of(blockIdx.x % (down * across), down, across, p.group);
    const unsigned top = tile.x * BLOCK_M, left = tile.y * BLOCK_N;
    const unsigned begin = part * p.part_k, end = part + 1 < gridDim.y ? begin + p.part_k : p.k;
    real sum[THREAD_M][THREAD_N] = {};
#if BULK
    // A matrix that is the batch's only one is the map's only one.
    const BulkLines a = {of_a, p.a.batch_stride ? (int)batch : 0};
    const BulkLines b = {of_b, p.b.batch_stride ? (int)batch : 0};
    multiply_bulk<TileA, TileB>(sum, shared, a, b, top, left, begin, end);
#else
    const Lines a = {p.a.pointer + batch * p.a.batch_stride, p.a.pitch, p.a.count};
    const Lines b = {p.b.pointer + batch * p.b.batch_stride, p.b.pitch, p.b.count};
    multiply<TileA, TileB>(sum, shared, a, b, top, left, begin, end);
#endif
    Elements<real> d = p.d[batch];
    d.pointer += part * p.part_stride;
    store<TileA, TileB>(sum, p.alpha, p.beta, p.c[batch], d, top, left, p.m, p.columns);
}
