// Idea: a thread computes a column of THREAD_M elements: a value of B, once read, serves them all.
// Cost: a multiply-add takes 1 + 1/THREAD_M shared values where tiled's takes 2.
// Next: thread_tile_2d has a thread compute a square, so that values of A serve several too.

#ifndef real
#define real float
#endif
#ifndef BLOCK_M  // of C, a block's tile; BLOCK_K is how deep it is along k
#define BLOCK_M 64
#define BLOCK_N 64
#define BLOCK_K 8
#define THREAD_M 8
#endif
#define THREADS (BLOCK_M / THREAD_M * BLOCK_N)

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void __launch_bounds__(THREADS) thread_tile_1d(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    __shared__ real sa[BLOCK_M][BLOCK_K];
    __shared__ real sb[BLOCK_K][BLOCK_N];
    unsigned thread = threadIdx.x;
    unsigned tx = thread % BLOCK_N, ty = thread / BLOCK_N * THREAD_M;
    unsigned top = blockIdx.y * BLOCK_M, left = blockIdx.x * BLOCK_N;
    // A warp whose part of the tile is past C's edge only loads; it votes, so that its lanes don't diverge.
    bool inside = __any_sync(0xffffffff, top + ty < m && left + tx < n);
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    real sum[THREAD_M] = {};
    for (unsigned p = 0; p < k; p += BLOCK_K) {  // unsigned: p + BLOCK_K may pass 2^31 - 1
        // Past the edge the tiles hold zeros.
        for (unsigned i = thread; i < BLOCK_M * BLOCK_K; i += THREADS) {
            unsigned y = i / BLOCK_K, x = i % BLOCK_K;
            sa[y][x] = top + y < m && p + x < k ? a[(size_t)(top + y) * lda + p + x] : 0;
        }
        for (unsigned i = thread; i < BLOCK_K * BLOCK_N; i += THREADS) {
            unsigned y = i / BLOCK_N, x = i % BLOCK_N;
            sb[y][x] = p + y < k && left + x < n ? b[(size_t)(p + y) * ldb + left + x] : 0;
        }
        __syncthreads();  // both tiles are whole before anybody reads them
        if (inside) {
            #pragma unroll
            for (int i = 0; i < BLOCK_K; ++i) {
                real of_b = sb[i][tx];
                for (int j = 0; j < THREAD_M; ++j) sum[j] += sa[ty + j][i] * of_b;
            }
        }
        __syncthreads();  // everybody has read before the next phase overwrites
    }
    for (int j = 0; j < THREAD_M; ++j) {
        unsigned row = top + ty + j, col = left + tx;
        if (row >= m || col >= n) continue;
        size_t at = (size_t)row * ldc + col;
        c[at] = beta == 0 ? alpha * sum[j] : alpha * sum[j] + beta * c[at];
    }
}
