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

struct __align__(16) Vector { real x[WIDTH]; };

// The elements at ``from``, of which ``count`` are inside, and zeros.
__device__ inline Vector load(const real* from, int count, bool aligned)
{
    if (aligned && count >= WIDTH) return *(const Vector*)from;
    Vector found = {};
    for (int i = 0; i < WIDTH; ++i) {
        if (i < count) found.x[i] = from[i];
    }
    return found;
}

// Begins to copy BYTES bytes to shared memory; what is beyond ``size`` of them becomes 0.
template <int BYTES> __device__ inline void copy_async(real* to, const real* from, int size)
{
    // PTX ISA 9.7.9.25.3.1, "cp.async".
    unsigned at = __cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :: "r"(at), "l"(from), "n"(BYTES), "r"(size) : "memory");
}

// Adds to a thread's sums what A's rows from ``a`` on and B's columns from ``b`` on give. Of them,
// ``rows``, ``columns`` and ``k`` are inside the matrices. The thread reads the tiles from row ``ty``
// and column ``tx`` on. It copies A's elements one by one, for its tile is turned round, and of B's W
// neighbours at a time, always beside those of the next lane.
template <int W> __device__ inline void multiply(
    real (&sum)[THREAD_M][THREAD_N], real (&sa)[2][BLOCK_K][BLOCK_M + WIDTH], real (&sb)[2][BLOCK_K][BLOCK_N],
    const real* a, int lda, const real* b, int ldb, int rows, int columns, int k, int ty, int tx)
{
    int ax = threadIdx.x % BLOCK_K, ay = threadIdx.x / BLOCK_K;
    int bx = threadIdx.x * W % BLOCK_N, by = threadIdx.x * W / BLOCK_N;
    constexpr int DOWN = THREADS / BLOCK_K, DEEP = THREADS * W / BLOCK_N;
    const real* from_a[BLOCK_M / DOWN];
    // Past A's last row it is the last again, for what comes of it is stored nowhere.
    for (int e = 0; e < BLOCK_M / DOWN; ++e) from_a[e] = a + (size_t)min(ay + e * DOWN, rows - 1) * lda + ax;
    const real* from_b = b + (size_t)by * ldb + bx;
    int width = max(min(columns - bx, W), 0) * sizeof(real);
    auto copy = [&](int buffer, int rest) {
        // Past the end of k the tiles hold zeros, and nothing is read.
        for (int e = 0; e < BLOCK_M / DOWN; ++e) {
            copy_async<sizeof(real)>(&sa[buffer][ax][ay + e * DOWN], from_a[e], ax < rest ? sizeof(real) : 0);
            from_a[e] += BLOCK_K;
        }
        for (int e = 0; e < BLOCK_K / DEEP; ++e)
            copy_async<W * sizeof(real)>(&sb[buffer][by + e * DEEP][bx], from_b + (ptrdiff_t)ldb * (e * DEEP),
                                         by + e * DEEP < rest ? width : 0);
        from_b += (ptrdiff_t)ldb * BLOCK_K;
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    if (k > 0) copy(0, k);
    int buffer = 0;
    // A warp past C's edge only copies. It votes, for then the compiler knows that its lanes agree.
    bool inside = __any_sync(0xffffffff, ty < rows && tx < columns);
    for (int rest = k; rest > 0; rest -= BLOCK_K, buffer ^= 1) {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        // These tiles are whole before anybody reads them, and the others were read by everybody.
        __syncthreads();
        if (!inside) {
            copy(buffer ^ 1, rest - BLOCK_K);
            continue;
        }
        #pragma unroll
        for (int i = 0; i < BLOCK_K; ++i) {
            // Half way: behind the barrier all warps read the tiles, and would wait for the copies.
            if (i == BLOCK_K / 2) copy(buffer ^ 1, rest - BLOCK_K);
            Vector of_a[THREAD_M / WIDTH], of_b[THREAD_N / WIDTH];
            for (int j = 0; j < THREAD_M / WIDTH; ++j)
                of_a[j] = *(Vector*)&sa[buffer][i][ty + j * LANES_M * WIDTH];
            for (int l = 0; l < THREAD_N / WIDTH; ++l)
                of_b[l] = *(Vector*)&sb[buffer][i][tx + l * LANES_N * WIDTH];
            for (int j = 0; j < THREAD_M; ++j)
                for (int l = 0; l < THREAD_N; ++l)
                    sum[j][l] += of_a[j / WIDTH].x[j % WIDTH] * of_b[l / WIDTH].x[l % WIDTH];
        }
    }
}

// Of a matrix whose rows begin 16 bytes apart, or a multiple of it.
__device__ inline bool is_aligned(const real* x, int leading)
{
    return (size_t)x % 16 == 0 && leading % WIDTH == 0;
}

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) double_buffered(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    // 16 bytes wider than A's tile: the lanes that copy along k meet in no bank.
    __shared__ __align__(16) real sa[2][BLOCK_K][BLOCK_M + WIDTH];
    __shared__ __align__(16) real sb[2][BLOCK_K][BLOCK_N];
    unsigned thread = threadIdx.x;
    unsigned lane = thread % 32, warp = thread / 32;
    // Where its first piece is; the next ones are LANES_M and LANES_N pieces further on.
    unsigned tx = warp % (BLOCK_N / WARP_N) * WARP_N + lane % LANES_N * WIDTH;
    unsigned ty = warp / (BLOCK_N / WARP_N) * WARP_M + lane / LANES_N * WIDTH;
    unsigned top = blockIdx.y * BLOCK_M, left = blockIdx.x * BLOCK_N;
    bool b_aligned = is_aligned(b, ldb), c_aligned = is_aligned(c, ldc);
    // As in BLAS: A and B are not read, so a NaN there does not spread. And no row is the last of none.
    if (alpha == 0 || m == 0) k = 0;

    real sum[THREAD_M][THREAD_N] = {};
    a += (size_t)top * lda;
    b += left;
    if (b_aligned) multiply<WIDTH>(sum, sa, sb, a, lda, b, ldb, m - top, n - left, k, ty, tx);
    else multiply<1>(sum, sa, sb, a, lda, b, ldb, m - top, n - left, k, ty, tx);
    #pragma unroll  // or the sums would have to lie in memory, to be chosen from by j
    for (int j = 0; j < THREAD_M; ++j) {
        for (int l = 0; l < THREAD_N; l += WIDTH) {
            unsigned row = top + ty + j / WIDTH * LANES_M * WIDTH + j % WIDTH;
            unsigned col = left + tx + l * LANES_N;
            if (row >= m || col >= n) continue;
            real* at = c + (size_t)row * ldc + col;
            int count = n - col;
            Vector old = beta == 0 ? Vector{} : load(at, count, c_aligned), found;
            for (int i = 0; i < WIDTH; ++i)
                found.x[i] = beta == 0 ? alpha * sum[j][l + i] : alpha * sum[j][l + i] + beta * old.x[i];
            if (c_aligned && count >= WIDTH) *(Vector*)at = found;
            else for (int i = 0; i < WIDTH; ++i) if (i < count) at[i] = found.x[i];
        }
    }
}
