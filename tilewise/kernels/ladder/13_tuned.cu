// Idea: double_buffered with its sizes chosen by a sweep, in the order of its multiply-adds too; its
// blocks in an order that shares in L2; and three stages, with the addresses carried along.
// Cost: so many registers a thread that 8 to 16 warps take all that a multiprocessor has.

#ifndef real
#define real float
#endif
#ifndef BLOCK_M
#define BLOCK_M 64
#define BLOCK_N 128
#define BLOCK_K 16
#define THREAD_M 8
#define THREAD_N 8
#define LANES_M 2
#define STAGES 3
#define DOUBLE_BUFFER 0
#define ORDER_M 1
#define ORDER_N 4
#define BY_ROWS 0
#define INNER_BY_ROWS 1
#endif
#ifndef BLOCKS
#define BLOCKS 1  // of a multiprocessor, at least
#endif
#ifndef STAGED
#define STAGED 0  // 1 to store rows that are not 16-byte aligned by way of shared memory
#endif
#define GROUP 8  // rows of tiles whose blocks run together

#include "../gemm/simt.cuh"

typedef CopiedTile<BLOCK_M, true, 1, LANES_M> TileA;
template <int WIDTH> using TileB = CopiedTile<BLOCK_N, false, WIDTH, LANES_N>;

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) tuned(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    constexpr int SIZE = STAGES * STAGE<TileA, TileB<PIECE>>;
    __shared__ __align__(16) real shared[SIZE];
    uint2 tile = tile_of(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x, GROUP);
    unsigned top = tile.x * BLOCK_M, left = tile.y * BLOCK_N;
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    real sum[THREAD_M][THREAD_N] = {};
    Lines rows = {a, lda, (unsigned)m}, columns = {b, ldb, (unsigned)n};
    bool by_pieces = (size_t)b % 16 == 0 && ldb % PIECE == 0 && n % PIECE == 0;
    if (by_pieces) multiply<TileA, TileB<PIECE>>(sum, shared, rows, columns, top, left, 0, k);
    else multiply<TileA, TileB<1>>(sum, shared, rows, columns, top, left, 0, k);
    add_slices<SIZE>(sum, shared);
    if (SLICES > 1 && threadIdx.x >= SLICE) return;
#if STAGED
    if ((size_t)c % 16 || ldc % PIECE)
        store_by_elements<TileA, SIZE>(sum, shared, alpha, beta, {c, ldc, 1}, {c, ldc, 1}, top, left, m, n);
    else
#endif
        store<TileA, TileB<1>>(sum, alpha, beta, {c, ldc, 1}, {c, ldc, 1}, top, left, m, n);
}
