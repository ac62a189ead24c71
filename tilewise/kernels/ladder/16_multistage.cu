// Idea: a ring of STAGES tiles, filled by cp.async STAGES - 1 phases ahead; fragments are loaded a step ahead.
// Cost: one barrier a phase; but so much shared memory, and so many registers, that 8 warps fill a multiprocessor.
// Next: warpgroup has the tensor cores read A and B in shared memory, where a TMA copies them.

#ifndef BFLOAT16
#define BFLOAT16 0  // 1 for matrices of bfloat16, 0 for float16
#endif
#ifndef BLOCK_M  // of C, a block's tile; BLOCK_K is how deep it is along k
#define BLOCK_M 128
#define BLOCK_N 128
#define BLOCK_K 32
#define WARP_M 64  // a warp's tile
#define WARP_N 64
#endif
#ifndef STAGES
#define STAGES 4  // of tiles in shared memory
#endif
#ifndef BLOCKS
#define BLOCKS 1  // of a multiprocessor at once, at least
#endif
#if BFLOAT16
#define TYPE "bf16"
#else
#define TYPE "f16"
#endif
#ifndef GROUP
#define GROUP 8  // rows of tiles whose blocks run together
#endif

typedef unsigned short half_t;

constexpr int WARPS_N = BLOCK_N / WARP_N, THREADS = 32 * (BLOCK_M / WARP_M) * WARPS_N;
constexpr int WIDTH = 8;                                // elements in 16 bytes
constexpr int ROWS = WARP_M / 16, COLUMNS = WARP_N / 8;  // fragments of a warp's tile
constexpr int STEPS = BLOCK_K / 16;                     // of k, in a phase
constexpr int SIZE_A = BLOCK_M * BLOCK_K, STAGE = SIZE_A + BLOCK_K * BLOCK_N;  // elements

static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0 && WARP_M % 16 == 0 && WARP_N % 16 == 0);
static_assert(STEPS % 2 == 0 && STAGES > 1 && STAGES * STAGE >= BLOCK_M * BLOCK_N);

struct __align__(16) Vector { half_t x[WIDTH]; };
struct __align__(4) Pair { half_t x[2]; };

// Dynamic shared memory: STAGES tiles of A, each with its tile of B behind it; at the end, C.
extern __shared__ __align__(128) half_t tiles[];

// Where row ``y`` and column ``x`` of a tile of rows of L elements are. Which of a row's 16-byte pieces lies
// where changes from row to row (XOR): any eight rows have the pieces of a column in all 32 banks.
template <int L> __device__ inline unsigned place(unsigned y, unsigned x)
{
    constexpr unsigned PIECES = L / WIDTH;                    // of a row
    constexpr unsigned SHARE = PIECES < 8 ? 8 / PIECES : 1;  // rows in 128 bytes
    return y * L + (x / WIDTH ^ y / SHARE % (8 / SHARE)) * WIDTH + x % WIDTH;
}

__device__ inline float to_float(half_t x)
{
#if BFLOAT16
    return __uint_as_float((unsigned)x << 16);  // the upper half of a float
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));  // PTX ISA 9.7.9.22, "cvt"
    return value;
#endif
}

__device__ inline half_t to_half(float x)
{
    half_t value;
    asm("cvt.rn." TYPE ".f32 %0, %1;" : "=h"(value) : "f"(x));
    return value;
}

// Begins to copy 16 bytes to shared memory, or where not ``inside`` zeros (PTX ISA 9.7.9.25.3.1, "cp.async").
__device__ inline void copy_async(unsigned to, const half_t* from, bool inside)
{
    asm volatile("{ .reg .pred missing;\n"
                 "setp.eq.u32 missing, %2, 0;\n"
                 "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, missing; }"
                 :: "r"(to), "l"(from), "r"((unsigned)inside) : "memory");
}

// d += a * b. Lane 4 g + t holds of A rows g and g + 8, and of B column g, the pairs of k at 2 t and 2 t + 8;
// of D rows g and g + 8 the pair of columns at 2 t (PTX ISA 9.7.14.5.8, "Matrix Fragments for mma.m16n8k16").
__device__ inline void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four pieces of 8 x 8, lane l giving the address of row l % 8 of piece l / 8 (9.7.14.5.15, "ldmatrix").
__device__ inline void load_a(unsigned (&a)[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at) : "memory");
}

// The same, transposed, of two fragments of B.
__device__ inline void load_b(unsigned (&b)[2], unsigned (&right)[2], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(right[0]), "=r"(right[1]) : "r"(at) : "memory");
}

// A warp's fragments of one step of k.
struct Fragments {
    unsigned a[ROWS][4], b[COLUMNS][2];

    // From the tiles at ``stage``. ``of_a`` and ``of_b`` are where in them the lane's row of its first fragments
    // is. A fragment further on is in the same row of the swizzle, so that XOR finds it there.
    __device__ void load(unsigned stage, unsigned of_a, unsigned of_b, int step)
    {
        #pragma unroll
        for (int j = 0; j < ROWS; ++j)
            load_a(a[j], stage + (of_a ^ step * 32) + j * 16 * BLOCK_K * 2);
        #pragma unroll
        for (int l = 0; l < COLUMNS; l += 2)
            load_b(b[l], b[l + 1], stage + (of_b ^ l * 16) + step * 16 * BLOCK_N * 2);
    }
    // There and back, so that neighbours in time share a fragment.
    __device__ void multiply(float (&sum)[ROWS][COLUMNS][4])
    {
        #pragma unroll
        for (int j = 0; j < ROWS; ++j)
            #pragma unroll
            for (int i = 0; i < COLUMNS; ++i) {
                int l = j % 2 ? COLUMNS - 1 - i : i;
                mma(sum[j][l], a[j], b[l]);
            }
    }
};

// Copies the tiles of one phase after another, 16 bytes at a time (W is 8) or one element.
template <int W> struct Copier {
    static constexpr int DOWN = THREADS * W / BLOCK_K, DEEP = THREADS * W / BLOCK_N;
    static_assert(W == 1 || DOWN % 8 == 0 && DEEP % 8 == 0, "rows this far apart are swizzled alike");
    const half_t *a, *b;      // where the next phase's tiles begin in the matrices, for this thread
    long long lda, ldb;
    unsigned ax, ay, bx, by;  // and which of the tiles' elements that is
    unsigned rows, columns;   // how many of A's and of B's are left from there on
    int k;                    // and of k, from where the tiles begin

    __device__ Copier(unsigned m, unsigned n, int k, const half_t* a, int lda, const half_t* b, int ldb,
                      unsigned top, unsigned left)
        : lda(lda), ldb(ldb), k(k)
    {
        ax = threadIdx.x * W % BLOCK_K, ay = threadIdx.x * W / BLOCK_K;
        bx = threadIdx.x * W % BLOCK_N, by = threadIdx.x * W / BLOCK_N;
        rows = top + ay < m ? m - top - ay : 0;
        columns = left + bx < n ? n - left - bx : 0;
        this->a = a + (size_t)(top + ay) * lda + ax;
        this->b = b + (size_t)by * ldb + left + bx;
    }
    // Past the edge the tiles hold zeros.
    __device__ void copy(int stage)
    {
        half_t *to_a = tiles + stage * STAGE, *to_b = to_a + SIZE_A;
        if constexpr (W == WIDTH) {
            unsigned at_a = __cvta_generic_to_shared(to_a) + place<BLOCK_K>(ay, ax) * 2;
            unsigned at_b = __cvta_generic_to_shared(to_b) + place<BLOCK_N>(by, bx) * 2;
            #pragma unroll
            for (int i = 0; i < BLOCK_M; i += DOWN)
                copy_async(at_a + i * BLOCK_K * 2, a + i * lda, i < rows && (int)ax < k);
            #pragma unroll
            for (int i = 0; i < BLOCK_K; i += DEEP)
                copy_async(at_b + i * BLOCK_N * 2, b + i * ldb, columns > 0 && (int)by + i < k);
        } else {
            #pragma unroll 4
            for (int i = 0; i < BLOCK_M; i += DOWN)
                to_a[place<BLOCK_K>(ay + i, ax)] = i < rows && (int)ax < k ? a[i * lda] : 0;
            #pragma unroll 4
            for (int i = 0; i < BLOCK_K; i += DEEP)
                to_b[place<BLOCK_N>(by + i, bx)] = columns > 0 && (int)by + i < k ? b[i * ldb] : 0;
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        a += BLOCK_K;
        b += BLOCK_K * ldb;
        k -= BLOCK_K;
    }
};

// A pair of C: alpha * sum + beta * C, rounded once. C is read where it is ``inside`` and beta is not 0.
__device__ inline unsigned pair(float alpha, float low, float high, float beta, const half_t* c, bool inside)
{
    low *= alpha, high *= alpha;
    if (beta != 0 && inside) {
        Pair found = *(const Pair*)c;
        low += beta * to_float(found.x[0]), high += beta * to_float(found.x[1]);
    }
    unsigned packed;
    asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// A warp's tile of C, at row ``top`` and column ``left``: by way of shared memory, so that lanes store
// 16 bytes side by side.
__device__ inline void store_vectors(
    float (&sum)[ROWS][COLUMNS][4], unsigned top, unsigned left, unsigned m, unsigned n,
    float alpha, float beta, half_t* c, int ldc)
{
    unsigned lane = threadIdx.x % 32;
    half_t* own = tiles + threadIdx.x / 32 * WARP_M * WARP_N;
    #pragma unroll
    for (int j = 0; j < ROWS; ++j)
        #pragma unroll
        for (int l = 0; l < COLUMNS; ++l)
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                unsigned y = j * 16 + i * 8 + lane / 4, x = l * 8 + lane % 4 * 2;
                bool inside = top + y < m && left + x < n;
                const half_t* at = c + (size_t)(top + y) * ldc + left + x;
                *(unsigned*)&own[place<WARP_N>(y, x)] =
                    pair(alpha, sum[j][l][2 * i], sum[j][l][2 * i + 1], beta, at, inside);
            }
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < WARP_M * WARP_N; i += 32 * WIDTH) {
        unsigned y = (i + lane * WIDTH) / WARP_N, x = (i + lane * WIDTH) % WARP_N;
        if (top + y < m && left + x < n)
            *(Vector*)&c[(size_t)(top + y) * ldc + left + x] = *(const Vector*)&own[place<WARP_N>(y, x)];
    }
}

// The same, one element after another.
__device__ inline void store_elements(
    float (&sum)[ROWS][COLUMNS][4], unsigned top, unsigned left, unsigned m, unsigned n,
    float alpha, float beta, half_t* c, int ldc)
{
    unsigned lane = threadIdx.x % 32;
    #pragma unroll
    for (int j = 0; j < ROWS; ++j)
        #pragma unroll
        for (int l = 0; l < COLUMNS; ++l)
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                unsigned row = top + j * 16 + i / 2 * 8 + lane / 4, col = left + l * 8 + lane % 4 * 2 + i % 2;
                if (row >= m || col >= n) continue;
                half_t* at = &c[(size_t)row * ldc + col];
                float value = alpha * sum[j][l][i];
                *at = to_half(beta == 0 ? value : value + beta * to_float(*at));
            }
}

// The kernel, moving W neighbours at a time.
template <int W> __device__ inline void product(
    int m, int n, int k, float alpha, const half_t* a, int lda, const half_t* b, int ldb,
    float beta, half_t* c, int ldc, unsigned top, unsigned left)
{
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned wx = warp % WARPS_N * WARP_N, wy = warp / WARPS_N * WARP_M;
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    // Where in the tiles the lane's rows of a warp's first fragments are.
    unsigned of_a = place<BLOCK_K>(wy + lane % 16, lane / 16 * 8) * 2;
    unsigned of_b = (SIZE_A + place<BLOCK_N>(lane % 16, wx + lane / 16 * 8)) * 2;
    unsigned shared = __cvta_generic_to_shared(tiles);

    Copier<W> copier(m, n, k, a, lda, b, ldb, top, left);
    for (int stage = 0; stage < STAGES - 1; ++stage) copier.copy(stage);
    asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
    __syncthreads();  // the first tiles are whole before anybody reads them
    float sum[ROWS][COLUMNS][4] = {};
    Fragments fragments[2];
    fragments[0].load(shared, of_a, of_b, 0);
    int reading = 0, writing = STAGES - 1;
    for (unsigned p = 0; p < k; p += BLOCK_K) {  // unsigned: p + BLOCK_K may pass 2^31 - 1
        #pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            if (i == STEPS - 1) {
                reading = reading == STAGES - 1 ? 0 : reading + 1;
                asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
                // The next tiles are whole before anybody reads them, and everybody has read these.
                __syncthreads();
            }
            fragments[(i + 1) % 2].load(shared + reading * STAGE * 2, of_a, of_b, (i + 1) % STEPS);
            if (i == 0) {  // into the tiles of the phase before
                copier.copy(writing);
                writing = writing == STAGES - 1 ? 0 : writing + 1;
            }
            fragments[i % 2].multiply(sum);
        }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();  // nobody reads tiles any more, and no copy writes to them
    if constexpr (W > 1) store_vectors(sum, top + wy, left + wx, m, n, alpha, beta, c, ldc);
    else store_elements(sum, top + wy, left + wx, m, n, alpha, beta, c, ldc);
}

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) multistage(
    int m, int n, int k, float alpha, const half_t* a, int lda, const half_t* b, int ldb,
    float beta, half_t* c, int ldc)
{
    // Blocks take GROUP rows of tiles at a time, so that those that run at once share in L2 what they read.
    unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    unsigned first = block / (GROUP * gridDim.x) * GROUP, here = min(GROUP, gridDim.y - first);
    unsigned rest = block % (GROUP * gridDim.x);
    unsigned top = (first + rest % here) * BLOCK_M, left = rest / here * BLOCK_N;
    // Every row is 16-byte aligned, and no piece of 16 bytes reaches past a row's end.
    bool aligned = ((size_t)a | (size_t)b | (size_t)c) % 16 == 0 && (lda | ldb | ldc | n | k) % WIDTH == 0;
    if (aligned) product<WIDTH>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, top, left);
    else product<1>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, top, left);
}
