// Idea: the next tiles are copied (cp.async) while these are used, into the other of two buffers.
// Cost: twice the shared memory, for one barrier a phase in place of two, and no wait for loads.
// Next: tuned picks the sizes by a sweep, and the order of the blocks.

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
#define LANES_M 4  // of a warp's 32 lanes, down its tile
#define LANES_N 8
#define WARP_M (LANES_M * THREAD_M)  // a warp's tile
#define WARP_N (LANES_N * THREAD_N)

// W neighbours in a row, which one instruction moves.
template <int W> struct __align__(W * sizeof(real)) Piece { real x[W]; };

// How far a thread's ``i``th row and column is from its first: its pieces are LANES_M and LANES_N apart.
__device__ constexpr int down(int i) { return i / WIDTH * LANES_M * WIDTH + i % WIDTH; }
__device__ constexpr int across(int i) { return i / WIDTH * LANES_N * WIDTH + i % WIDTH; }

// A's rows are 16 bytes longer, so that the lanes that copy along k use different banks.
__shared__ __align__(16) real sa[2][BLOCK_K][BLOCK_M + WIDTH];
__shared__ __align__(16) real sb[2][BLOCK_K][BLOCK_N];

// Begins to copy BYTES bytes to shared memory, or where not ``inside`` zeros.
template <int BYTES> __device__ inline void copy_async(real* to, const real* from, bool inside)
{
    // PTX ISA 9.7.9.25.3.1, "cp.async".
    unsigned at = __cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :: "r"(at), "l"(from), "n"(BYTES), "r"(inside ? BYTES : 0) : "memory");
}

// The kernel, moving W neighbours at a time.
template <int W> __device__ inline void product(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    unsigned thread = threadIdx.x;
    unsigned lane = thread % 32, warp = thread / 32;
    unsigned tx = warp % (BLOCK_N / WARP_N) * WARP_N + lane % LANES_N * WIDTH;
    unsigned ty = warp / (BLOCK_N / WARP_N) * WARP_M + lane / LANES_N * WIDTH;
    unsigned top = blockIdx.y * BLOCK_M, left = blockIdx.x * BLOCK_N;
    // A warp whose part of the tile is past C's edge only copies; it votes, so that its lanes don't diverge.
    bool inside = __any_sync(0xffffffff, top + ty < m && left + tx < n);
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    // Where in the tiles a thread copies first; then DOWN rows of A's and DEEP of B's further on.
    // A's tile is stored transposed, so that a copy of it is one element.
    unsigned ax = thread % BLOCK_K, ay = thread / BLOCK_K;
    unsigned bx = thread * W % BLOCK_N, by = thread * W / BLOCK_N;
    constexpr int DOWN = THREADS / BLOCK_K, DEEP = THREADS * W / BLOCK_N;
    real sum[THREAD_M][THREAD_N] = {};
    a += (size_t)(top + ay) * lda + ax;
    b += (size_t)by * ldb + left + bx;
    auto copy = [&](int buffer, unsigned p) {
        // Past the edge the tiles hold zeros.
        for (int i = 0; i < BLOCK_M / DOWN; ++i)
            copy_async<sizeof(real)>(&sa[buffer][ax][ay + i * DOWN], a + (ptrdiff_t)lda * (i * DOWN),
                                     top + ay + i * DOWN < m && p + ax < k);
        for (int i = 0; i < BLOCK_K / DEEP; ++i)
            copy_async<W * sizeof(real)>(&sb[buffer][by + i * DEEP][bx], b + (ptrdiff_t)ldb * (i * DEEP),
                                         p + by + i * DEEP < k && left + bx < n);
        a += BLOCK_K;
        b += (ptrdiff_t)ldb * BLOCK_K;
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    copy(0, 0);
    for (unsigned p = 0; p < k; p += BLOCK_K) {  // unsigned: p + BLOCK_K may pass 2^31 - 1
        int buffer = p / BLOCK_K % 2;
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        // These tiles are whole before anybody reads them, and everybody has read the other ones.
        __syncthreads();
        if (!inside) {
            copy(buffer ^ 1, p + BLOCK_K);
            continue;
        }
        #pragma unroll
        for (int i = 0; i < BLOCK_K; ++i) {
            // Half way, because right behind the barrier all warps' reads would queue behind the copies.
            if (i == BLOCK_K / 2) copy(buffer ^ 1, p + BLOCK_K);
            real of_a[THREAD_M], of_b[THREAD_N];
            for (int j = 0; j < THREAD_M; ++j) of_a[j] = sa[buffer][i][ty + down(j)];
            for (int l = 0; l < THREAD_N; ++l) of_b[l] = sb[buffer][i][tx + across(l)];
            for (int j = 0; j < THREAD_M; ++j)
                for (int l = 0; l < THREAD_N; ++l) sum[j][l] += of_a[j] * of_b[l];
        }
    }
    #pragma unroll
    for (int j = 0; j < THREAD_M; ++j) {
        for (int l = 0; l < THREAD_N; l += W) {
            unsigned row = top + ty + down(j), col = left + tx + across(l);
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
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) double_buffered(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    // Every row is 16-byte aligned, and no piece of 16 bytes reaches past a row's end.
    bool aligned = ((size_t)a | (size_t)b | (size_t)c) % 16 == 0 && (lda | ldb | ldc | n | k) % WIDTH == 0;
    if (aligned) product<WIDTH>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    else product<1>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
