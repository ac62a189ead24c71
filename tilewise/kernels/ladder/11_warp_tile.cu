// Idea: a tile of C for each warp, in the block's, and its lanes' 16-byte pieces side by side in it.
// Cost: lanes that read the same share it, and those that read others are in other banks.
// Next: double_buffered has the next tiles copied while these are used.

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
#define LANES_M 4  // of a warp's 32 lanes, down its tile
#define LANES_N 8
#define WARP_M (LANES_M * THREAD_M)  // a warp's tile
#define WARP_N (LANES_N * THREAD_N)

template <int W> struct __align__(W * sizeof(real)) Piece { real x[W]; };
typedef Piece<WIDTH> Vector;

// The elements at ``from``, of which ``count`` are inside, and zeros.
template <int W> __device__ inline Piece<W> load(const real* from, int count, bool aligned = true)
{
    if (aligned && count >= W) return *(const Piece<W>*)from;
    Piece<W> found = {};
    for (int i = 0; i < W; ++i) {
        if (i < count) found.x[i] = from[i];
    }
    return found;
}

// Adds to a thread's sums what A's rows from ``a`` on and B's columns from ``b`` on give. Of them,
// ``rows``, ``columns`` and ``k`` are inside the matrices. The thread reads the tiles from row ``ty``
// and column ``tx`` on; it loads W neighbours at a time, beside those of the next lane.
template <int W> __device__ inline void multiply(
    real (&sum)[THREAD_M][THREAD_N], real (&sa)[BLOCK_K][BLOCK_M + WIDTH], real (&sb)[BLOCK_K][BLOCK_N],
    const real* a, int lda, const real* b, int ldb, int rows, int columns, int k, int ty, int tx)
{
    int ax = threadIdx.x * W % BLOCK_K, ay = threadIdx.x * W / BLOCK_K;
    int bx = threadIdx.x * W % BLOCK_N, by = threadIdx.x * W / BLOCK_N;
    constexpr int DOWN = THREADS * W / BLOCK_K, DEEP = THREADS * W / BLOCK_N;
    Piece<W> of_rows[BLOCK_M / DOWN], of_columns[BLOCK_K / DEEP];
    const real* from_a[BLOCK_M / DOWN];
    // Past A's last row it is the last again, for what comes of it is stored nowhere.
    for (int e = 0; e < BLOCK_M / DOWN; ++e) from_a[e] = a + (size_t)min(ay + e * DOWN, rows - 1) * lda + ax;
    const real* from_b = b + (size_t)by * ldb + bx;
    // A warp past C's edge only loads. It votes, for then the compiler knows that its lanes agree.
    bool inside = __any_sync(0xffffffff, ty < rows && tx < columns);
    for (int rest = k; rest > 0; rest -= BLOCK_K) {
        // Past the end of k the tiles hold zeros.
        for (int e = 0; e < BLOCK_M / DOWN; ++e) {
            of_rows[e] = load<W>(from_a[e], rest - ax);
            from_a[e] += BLOCK_K;
        }
        for (int e = 0; e < BLOCK_K / DEEP; ++e)
            of_columns[e] = load<W>(from_b + (ptrdiff_t)ldb * (e * DEEP),
                                    by + e * DEEP < rest ? columns - bx : 0);
        from_b += (ptrdiff_t)ldb * BLOCK_K;
        // Only now, for a store waits for its load: all of them are on their way.
        for (int e = 0; e < BLOCK_M / DOWN; ++e)
            for (int j = 0; j < W; ++j) sa[ax + j][ay + e * DOWN] = of_rows[e].x[j];
        for (int e = 0; e < BLOCK_K / DEEP; ++e) *(Piece<W>*)&sb[by + e * DEEP][bx] = of_columns[e];
        __syncthreads();  // both tiles are whole before anybody reads them
        if (inside) {
            #pragma unroll
            for (int i = 0; i < BLOCK_K; ++i) {
                Vector of_a[THREAD_M / WIDTH], of_b[THREAD_N / WIDTH];
                for (int j = 0; j < THREAD_M / WIDTH; ++j) of_a[j] = *(Vector*)&sa[i][ty + j * LANES_M * WIDTH];
                for (int l = 0; l < THREAD_N / WIDTH; ++l) of_b[l] = *(Vector*)&sb[i][tx + l * LANES_N * WIDTH];
                for (int j = 0; j < THREAD_M; ++j)
                    for (int l = 0; l < THREAD_N; ++l)
                        sum[j][l] += of_a[j / WIDTH].x[j % WIDTH] * of_b[l / WIDTH].x[l % WIDTH];
            }
        }
        __syncthreads();  // everybody has read before the next phase overwrites
    }
}

// Of a matrix whose rows begin 16 bytes apart, or a multiple of it.
__device__ inline bool is_aligned(const real* x, int leading)
{
    return (size_t)x % 16 == 0 && leading % WIDTH == 0;
}

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void __launch_bounds__(THREADS) warp_tile(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    // 16 bytes wider than the tile: the lanes that store along k meet in no bank.
    __shared__ __align__(16) real sa[BLOCK_K][BLOCK_M + WIDTH];
    __shared__ __align__(16) real sb[BLOCK_K][BLOCK_N];
    unsigned thread = threadIdx.x;
    unsigned lane = thread % 32, warp = thread / 32;
    // Where its first piece is; the next ones are LANES_M and LANES_N pieces further on.
    unsigned tx = warp % (BLOCK_N / WARP_N) * WARP_N + lane % LANES_N * WIDTH;
    unsigned ty = warp / (BLOCK_N / WARP_N) * WARP_M + lane / LANES_N * WIDTH;
    unsigned top = blockIdx.y * BLOCK_M, left = blockIdx.x * BLOCK_N;
    bool aligned = is_aligned(a, lda) && is_aligned(b, ldb), c_aligned = is_aligned(c, ldc);
    // As in BLAS: A and B are not read, so a NaN there does not spread. And no row is the last of none.
    if (alpha == 0 || m == 0) k = 0;

    real sum[THREAD_M][THREAD_N] = {};
    a += (size_t)top * lda;
    b += left;
    if (aligned) multiply<WIDTH>(sum, sa, sb, a, lda, b, ldb, m - top, n - left, k, ty, tx);
    else multiply<1>(sum, sa, sb, a, lda, b, ldb, m - top, n - left, k, ty, tx);
    #pragma unroll  // or the sums would have to lie in memory, to be chosen from by j
    for (int j = 0; j < THREAD_M; ++j) {
        for (int l = 0; l < THREAD_N; l += WIDTH) {
            unsigned row = top + ty + j / WIDTH * LANES_M * WIDTH + j % WIDTH;
            unsigned col = left + tx + l * LANES_N;
            if (row >= m || col >= n) continue;
            real* at = c + (size_t)row * ldc + col;
            int count = n - col;
            Vector old = beta == 0 ? Vector{} : load<WIDTH>(at, count, c_aligned), found;
            for (int i = 0; i < WIDTH; ++i)
                found.x[i] = beta == 0 ? alpha * sum[j][l + i] : alpha * sum[j][l + i] + beta * old.x[i];
            if (c_aligned && count >= WIDTH) *(Vector*)at = found;
            else for (int i = 0; i < WIDTH; ++i) if (i < count) at[i] = found.x[i];
        }
    }
}
