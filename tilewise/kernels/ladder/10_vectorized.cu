// Idea: a thread moves 16 bytes at a time: from global memory, to and from shared memory, and to C.
// Cost: a quarter of the loads and stores; where rows are not 16-byte aligned, one element at a time.
// Next: warp_tile lays a warp's threads out so that their reads of shared memory never conflict.

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
#define WIDTH (16 / (int)sizeof(real))
#define BLOCKS (8 / (int)sizeof(real))  // of a multiprocessor at once

// W neighbours in a row, which one instruction moves.
template <int W> struct __align__(W * sizeof(real)) Piece { real x[W]; };

// A's rows are 16 bytes longer, so that the lanes that store along k use different banks.
__shared__ __align__(16) real sa[BLOCK_K][BLOCK_M + WIDTH];
__shared__ __align__(16) real sb[BLOCK_K][BLOCK_N];

// The kernel, moving W neighbours at a time.
template <int W> __device__ inline void product(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    unsigned thread = threadIdx.x;
    unsigned tx = thread % (BLOCK_N / THREAD_N) * THREAD_N;
    unsigned ty = thread / (BLOCK_N / THREAD_N) * THREAD_M;
    unsigned top = blockIdx.y * BLOCK_M, left = blockIdx.x * BLOCK_N;
    // A warp whose part of the tile is past C's edge only loads; it votes, so that its lanes don't diverge.
    bool inside = __any_sync(0xffffffff, top + ty < m && left + tx < n);
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    // Where in the tiles a thread's first pieces are; the next ones are DOWN rows of A's and DEEP of B's on.
    unsigned ax = thread * W % BLOCK_K, ay = thread * W / BLOCK_K;
    unsigned bx = thread * W % BLOCK_N, by = thread * W / BLOCK_N;
    constexpr int DOWN = THREADS * W / BLOCK_K, DEEP = THREADS * W / BLOCK_N;
    real sum[THREAD_M][THREAD_N] = {};
    a += (size_t)(top + ay) * lda + ax;
    b += (size_t)by * ldb + left + bx;
    for (unsigned p = 0; p < k; p += BLOCK_K) {  // unsigned: p + BLOCK_K may pass 2^31 - 1
        // Past the edge the tiles hold zeros.
        Piece<W> next_a[BLOCK_M / DOWN] = {}, next_b[BLOCK_K / DEEP] = {};
        for (int i = 0; i < BLOCK_M / DOWN; ++i)
            if (top + ay + i * DOWN < m && p + ax < k)
                next_a[i] = *(const Piece<W>*)(a + (ptrdiff_t)lda * (i * DOWN));
        for (int i = 0; i < BLOCK_K / DEEP; ++i)
            if (p + by + i * DEEP < k && left + bx < n)
                next_b[i] = *(const Piece<W>*)(b + (ptrdiff_t)ldb * (i * DEEP));
        a += BLOCK_K;
        b += (ptrdiff_t)ldb * BLOCK_K;
        // All loads are under way before the first store, which waits for what it stores.
        for (int i = 0; i < BLOCK_M / DOWN; ++i)
            for (int j = 0; j < W; ++j) sa[ax + j][ay + i * DOWN] = next_a[i].x[j];
        for (int i = 0; i < BLOCK_K / DEEP; ++i) *(Piece<W>*)&sb[by + i * DEEP][bx] = next_b[i];
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
    #pragma unroll
    for (int j = 0; j < THREAD_M; ++j) {
        for (int l = 0; l < THREAD_N; l += W) {
            unsigned row = top + ty + j, col = left + tx + l;
            if (row >= m || col >= n) continue;
            Piece<W>* at = (Piece<W>*)&c[(size_t)row * ldc + col];
            Piece<W> found = beta == 0 ? Piece<W>{} : *at;
            for (int i = 0; i < W; ++i)
                found.x[i] = beta == 0 ? alpha * sum[j][l + i] : alpha * sum[j][l + i] + beta * found.x[i];
            *at = found;
        }
    }
}

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) vectorized(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    // Every row is 16-byte aligned, and no piece of 16 bytes reaches past a row's end.
    bool aligned = ((size_t)a | (size_t)b | (size_t)c) % 16 == 0 && (lda | ldb | ldc | n | k) % WIDTH == 0;
    if (aligned) product<WIDTH>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    else product<1>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
