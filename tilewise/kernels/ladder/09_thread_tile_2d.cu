// Idea: a thread computes a square of THREAD_M x THREAD_N elements from a column and a row of the
// tiles, held in registers. A's tile is stored transposed, so that such a column is contiguous, with
// PADDING behind each row, so that the lanes that store along k use different banks.
// Cost: a multiply-add takes 1/THREAD_M + 1/THREAD_N shared values.
// Next: vectorized moves 16 bytes at a time, to shared memory and from it.

#ifndef real
#define real float
#endif
#ifndef BLOCK_M  // of C, a block's tile; BLOCK_K is how deep it is along k
#define BLOCK_M 128
#define BLOCK_N 128
#define BLOCK_K 8
#define THREAD_M 8
#define THREAD_N 8
#endif
#define THREADS (BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N))
#define PADDING (16 / (int)sizeof(real))

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void __launch_bounds__(THREADS) thread_tile_2d(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    __shared__ real sa[BLOCK_K][BLOCK_M + PADDING];
    __shared__ real sb[BLOCK_K][BLOCK_N];
    unsigned thread = threadIdx.x;
    unsigned tx = thread % (BLOCK_N / THREAD_N) * THREAD_N;
    unsigned ty = thread / (BLOCK_N / THREAD_N) * THREAD_M;
    unsigned top = blockIdx.y * BLOCK_M, left = blockIdx.x * BLOCK_N;
    // A warp whose part of the tile is past C's edge only loads; it votes, so that its lanes don't diverge.
    bool inside = __any_sync(0xffffffff, top + ty < m && left + tx < n);
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    real sum[THREAD_M][THREAD_N] = {};
    for (unsigned p = 0; p < k; p += BLOCK_K) {  // unsigned: p + BLOCK_K may pass 2^31 - 1
        // Past the edge the tiles hold zeros.
        for (unsigned i = thread; i < BLOCK_M * BLOCK_K; i += THREADS) {
            unsigned y = i / BLOCK_K, x = i % BLOCK_K;
            sa[x][y] = top + y < m && p + x < k ? a[(size_t)(top + y) * lda + p + x] : 0;
        }
        for (unsigned i = thread; i < BLOCK_K * BLOCK_N; i += THREADS) {
            unsigned y = i / BLOCK_N, x = i % BLOCK_N;
            sb[y][x] = p + y < k && left + x < n ? b[(size_t)(p + y) * ldb + left + x] : 0;
        }
        __syncthreads();  // both tiles are whole before anybody reads them
        if (inside) {
            #pragma unroll
            for (int i = 0; i < BLOCK_K; ++i) {
                real of_a[THREAD_M], of_b[THREAD_N];
                for (int j = 0; j < THREAD_M; ++j) of_a[j] = sa[i][ty + j];
                for (int l = 0; l < THREAD_N; ++l) of_b[l] = sb[i][tx + l];
                for (int j = 0; j < THREAD_M; ++j)
                    for (int l = 0; l < THREAD_N; ++l) sum[j][l] += of_a[j] * of_b[l];
            }
        }
        __syncthreads();  // everybody has read before the next phase overwrites
    }
    for (int j = 0; j < THREAD_M; ++j) {
        for (int l = 0; l < THREAD_N; ++l) {
            unsigned row = top + ty + j, col = left + tx + l;
            if (row >= m || col >= n) continue;
            size_t at = (size_t)row * ldc + col;
            c[at] = beta == 0 ? alpha * sum[j][l] : alpha * sum[j][l] + beta * c[at];
        }
    }
}
