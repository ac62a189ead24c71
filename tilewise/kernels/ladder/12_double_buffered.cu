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
#define A_ROWS (THREADS / BLOCK_K)  // of the tiles, all threads copy at once
#define B_ROWS (THREADS * WIDTH / BLOCK_N)
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

// Of a matrix whose rows begin 16 bytes apart, or a multiple of it.
__device__ inline bool is_aligned(const real* x, int leading)
{
    return (size_t)x % 16 == 0 && leading % WIDTH == 0;
}

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void __launch_bounds__(THREADS) double_buffered(
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
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    real sum[THREAD_M][THREAD_N] = {};
    // Each thread copies along a column of A's tile, one by one, for it is turned round; and of B's.
    unsigned ax = thread % BLOCK_K, ay = thread / BLOCK_K;
    unsigned bx = thread * WIDTH % BLOCK_N, by = thread * WIDTH / BLOCK_N;
    const real* from_a = a + (size_t)(top + ay) * lda + ax;
    const real* from_b = b + (size_t)by * ldb + left + bx;
    int rows = m - (top + ay), width = max(min((int)(n - (left + bx)), WIDTH), 0);  // that are inside
    auto copy = [&](int buffer, unsigned p) {
        // Past the edge the tiles hold zeros.
        for (int y = 0; y < BLOCK_M; y += A_ROWS) {
            bool inside = y < rows && p + ax < k;
            const real* from = inside ? from_a + (size_t)y * lda + p : a;
            copy_async<sizeof(real)>(&sa[buffer][ax][ay + y], from, inside ? sizeof(real) : 0);
        }
        if (b_aligned) {
            for (int y = 0; y < BLOCK_K; y += B_ROWS) {
                int count = p + by + y < k ? width : 0;
                const real* from = count ? from_b + (size_t)(p + y) * ldb : b;
                copy_async<16>(&sb[buffer][by + y][bx], from, count * sizeof(real));
            }
        } else {  // one by one, neighbours by neighbouring lanes
            for (int e = 0; e < BLOCK_K * BLOCK_N / THREADS; ++e) {
                unsigned i = e * THREADS + thread, y = i / BLOCK_N, x = i % BLOCK_N;
                bool inside = p + y < k && left + x < n;
                const real* from = inside ? b + (size_t)(p + y) * ldb + left + x : b;
                copy_async<sizeof(real)>(&sb[buffer][y][x], from, inside ? sizeof(real) : 0);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    if (k > 0) copy(0, 0);
    int buffer = 0;
    for (unsigned p = 0; p < k; p += BLOCK_K, buffer ^= 1) {  // unsigned: p may pass 2^31 - 1
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        // These tiles are whole before anybody reads them, and the others were read by everybody.
        __syncthreads();
        if (p + BLOCK_K < k) copy(buffer ^ 1, p + BLOCK_K);
        #pragma unroll
        for (int i = 0; i < BLOCK_K; ++i) {
            Vector of_a[THREAD_M / WIDTH], of_b[THREAD_N / WIDTH];
            for (int j = 0; j < THREAD_M / WIDTH; ++j) of_a[j] = *(Vector*)&sa[buffer][i][ty + j * LANES_M * WIDTH];
            for (int l = 0; l < THREAD_N / WIDTH; ++l) of_b[l] = *(Vector*)&sb[buffer][i][tx + l * LANES_N * WIDTH];
            for (int j = 0; j < THREAD_M; ++j)
                for (int l = 0; l < THREAD_N; ++l)
                    sum[j][l] += of_a[j / WIDTH].x[j % WIDTH] * of_b[l / WIDTH].x[l % WIDTH];
        }
    }
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
