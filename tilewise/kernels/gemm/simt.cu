// D = alpha A B + beta C of float or double without tensor cores, batched. A block computes a tile
// of D: blocks along x go through the tiles of one matrix of the batch after another. Blocks along
// y divide k (split-K): each stores partial sums, which splitk_sum.cu adds up.
//
// Macros: those of simt.cuh; BLOCKS, the least number of blocks a multiprocessor must hold;
// A_K_MAJOR and B_K_MAJOR (1 where k is the contiguous dimension, 0 for MN-major); A_WIDTH and
// B_WIDTH, elements of a copy; TMA, 1 for bulk tensor copies; OVERLAP as in launch.cuh.
#if TMA
#include "simt_tma.cuh"
#else
#include "simt.cuh"
#endif
#include "product.cuh"

#if TMA
typedef TmaTile<BLOCK_M, A_K_MAJOR, LANES_M> TileA;
typedef TmaTile<BLOCK_N, B_K_MAJOR, LANES_N> TileB;
constexpr int SHARED = STAGES * TMA_STAGE<TileA, TileB>, ALIGNED = SWIZZLED;
#else
typedef CopiedTile<BLOCK_M, A_K_MAJOR, A_WIDTH, LANES_M> TileA;
typedef CopiedTile<BLOCK_N, B_K_MAJOR, B_WIDTH, LANES_N> TileB;
constexpr int SHARED = STAGES * STAGE<TileA, TileB>, ALIGNED = 16;
#endif

// Whether unaligned rows of D are stored through shared memory, so that neighbouring lanes store
// neighbouring elements. With slices, the extra barrier costs more than this saves. A warp's row of
// WARP_N elements must be a multiple of its 32 lanes, or divide them.
constexpr bool STAGES_ROWS = SLICES == 1 && THREAD_N * sizeof(real) <= 32 && (WARP_N % 32 == 0 || 32 % WARP_N == 0);

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
gemm_simt(const __grid_constant__ Product<real, real, real> p
#if TMA
         , const __grid_constant__ TensorMap of_a, const __grid_constant__ TensorMap of_b
#endif
         FUSED_PARAMETER) {
    __shared__ __align__(ALIGNED) real shared[SHARED];
    begin_launch();
    const Place at(p, BLOCK_M, BLOCK_N);
    real sum[THREAD_M][THREAD_N] = {};
#if TMA
    // If all of the batch share a matrix, the tensor map has only that one.
    const MapMatrix a = {of_a, p.a.batch_stride ? (int)at.batch : 0};
    const MapMatrix b = {of_b, p.b.batch_stride ? (int)at.batch : 0};
    multiply_tma<TileA, TileB>(sum, shared, a, b, at.top, at.left, at.begin, at.end);
#else
    const Lines a = {p.a.pointer + at.batch * p.a.batch_stride, p.a.pitch, p.a.count};
    const Lines b = {p.b.pointer + at.batch * p.b.batch_stride, p.b.pitch, p.b.count};
    multiply<TileA, TileB>(sum, shared, a, b, at.top, at.left, at.begin, at.end);
#endif
    add_slices<SHARED>(sum, shared);
    const Matrix<const real> c = p.c[at.batch];
    Matrix<real> d = p.d[at.batch];
    d.pointer += at.part * p.part_stride;
    if (SLICES > 1 && threadIdx.x >= SLICE) return;
    // After slice_barrier() no thread reads the tiles in ``shared`` any more: the epilogue may reuse it.
    if (FUSES || p.beta != 0 || d.column_stride != 1) {
        slice_barrier();
        store_any<TileA, SHARED>(sum, shared, p.alpha, p.beta, c, d, at.batch, at.top, at.left, p.m,
                                 p.columns, FUSED);
    } else if (has_aligned_rows(d)) {
        store_rows<TileA, TileB, true>(sum, p.alpha, d, at.top, at.left, p.m, p.columns);
    } else if constexpr (STAGES_ROWS) {
        slice_barrier();
        store_unaligned_rows<TileA, SHARED>(sum, shared, p.alpha, d, at.top, at.left, p.m, p.columns);
    } else {
        store_rows<TileA, TileB, false>(sum, p.alpha, d, at.top, at.left, p.m, p.columns);
    }
}
