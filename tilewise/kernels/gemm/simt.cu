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

// Whether D's unaligned rows are stored by neighbouring lanes, by way of shared memory: of small tiles,
// whose stores are much of their time. Of larger ones the k-steps take longer on an H200 where the
// kernel has this code, and slices would wait for one barrier more.
constexpr bool BY_ELEMENTS = SLICES == 1 && THREAD_N == PIECE;

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
    if constexpr (BY_ELEMENTS) {
        if (!has_aligned_rows(d)) {
            __syncthreads();  // all threads have read ``shared``
            store_by_elements<TileA, SHARED>(sum, shared, p.alpha, p.beta, c, d, at.batch, at.top,
                                             at.left, p.m, p.columns, FUSED);
            return;
        }
    }
    store<TileA, TileB>(sum, p.alpha, p.beta, c, d, at.batch, at.top, at.left, p.m, p.columns,
                        FUSED);
}
