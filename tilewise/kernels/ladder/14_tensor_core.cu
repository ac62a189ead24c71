// Idea: the tensor cores multiply. A warp's mma.sync takes 16 x 16 of A and 16 x 8 of B from its lanes' registers.
// Cost: 2048 multiply-adds an instruction; but each fragment takes a lane four loads, pairs from its own places.
// Next: ldmatrix loads four 8 x 8 pieces of a tile by one instruction, to the lanes that need them.

#ifndef BFLOAT16
#define BFLOAT16 0  // 1 for matrices of bfloat16, 0 for float16
#endif
#ifndef BLOCK_M  // of C, a block's tile; BLOCK_K is how deep it is along k
#define BLOCK_M 128
#define BLOCK_N 128
#define BLOCK_K 32
#define WARP_M 64  // a warp's tile
#define WARP_N 32
#endif
#if BFLOAT16
#define TYPE "bf16"
#else
#define TYPE "f16"
#endif
#define THREADS (32 * (BLOCK_M / WARP_M) * (BLOCK_N / WARP_N))
#define BLOCKS (THREADS < 512 ? 512 / THREADS : 1)  // of a multiprocessor at once
#define WIDTH 8  // elements in 16 bytes
#define ROWS (WARP_M / 16)    // fragments down a warp's tile
#define COLUMNS (WARP_N / 8)  // and across it

typedef unsigned short half_t;

// W neighbours in a row, which one instruction moves.
template <int W> struct __align__(W * sizeof(half_t)) Piece { half_t x[W]; };

// Rows are 16 bytes longer, so that the lanes that load a fragment use different banks.
__shared__ __align__(16) half_t sa[BLOCK_M][BLOCK_K + WIDTH];
__shared__ __align__(16) half_t sb[BLOCK_K][BLOCK_N + WIDTH];

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

// d += a * b. Lane 4 g + t holds of A rows g and g + 8, and of B column g, the pairs of k at 2 t and 2 t + 8;
// of D rows g and g + 8 the pair of columns at 2 t (PTX ISA 9.7.14.5.8, "Matrix Fragments for mma.m16n8k16").
__device__ inline void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A fragment's pieces of A, rows from ``y`` and k from ``x`` on.
__device__ inline void load_a(unsigned (&a)[4], unsigned y, unsigned x)
{
    unsigned group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        a[i] = *(const unsigned*)&sa[y + group + i % 2 * 8][x + pair + i / 2 * 8];
}

// Those of B, k from ``y`` and columns from ``x`` on. A pair is one below the other there: two loads.
__device__ inline void load_b(unsigned (&b)[2], unsigned y, unsigned x)
{
    unsigned group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < 2; ++i)
        b[i] = sb[y + pair + i * 8][x + group] | sb[y + pair + i * 8 + 1][x + group] << 16;
}

// The kernel, moving W neighbours at a time.
template <int W> __device__ inline void product(
    int m, int n, int k, float alpha, const half_t* a, int lda, const half_t* b, int ldb,
    float beta, half_t* c, int ldc)
{
    unsigned thread = threadIdx.x;
    unsigned lane = thread % 32, warp = thread / 32;
    unsigned wx = warp % (BLOCK_N / WARP_N) * WARP_N, wy = warp / (BLOCK_N / WARP_N) * WARP_M;
    unsigned top = blockIdx.y * BLOCK_M, left = blockIdx.x * BLOCK_N;
    bool inside = top + wy < m && left + wx < n;  // a warp whose part of the tile is past C's edge only loads
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    // Where in the tiles a thread's first pieces are; the next ones are DOWN rows of A's and DEEP of B's on.
    unsigned ax = thread * W % BLOCK_K, ay = thread * W / BLOCK_K;
    unsigned bx = thread * W % BLOCK_N, by = thread * W / BLOCK_N;
    constexpr int DOWN = THREADS * W / BLOCK_K, DEEP = THREADS * W / BLOCK_N;
    float sum[ROWS][COLUMNS][4] = {};
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
        for (int i = 0; i < BLOCK_M / DOWN; ++i) *(Piece<W>*)&sa[ay + i * DOWN][ax] = next_a[i];
        for (int i = 0; i < BLOCK_K / DEEP; ++i) *(Piece<W>*)&sb[by + i * DEEP][bx] = next_b[i];
        __syncthreads();  // both tiles are whole before anybody reads them
        if (inside) {
            #pragma unroll
            for (int i = 0; i < BLOCK_K; i += 16) {
                unsigned of_a[ROWS][4], of_b[COLUMNS][2];
                for (int j = 0; j < ROWS; ++j) load_a(of_a[j], wy + j * 16, i);
                for (int l = 0; l < COLUMNS; ++l) load_b(of_b[l], i, wx + l * 8);
                for (int j = 0; j < ROWS; ++j)
                    for (int l = 0; l < COLUMNS; ++l) mma(sum[j][l], of_a[j], of_b[l]);
            }
        }
        __syncthreads();  // everybody has read before the next phase overwrites
    }
    // A pair of C at a time, or one element.
    constexpr int PAIR = W > 1 ? 2 : 1;
    #pragma unroll
    for (int j = 0; j < ROWS; ++j) {
        #pragma unroll
        for (int l = 0; l < COLUMNS; ++l) {
            for (int i = 0; i < 4; i += PAIR) {
                unsigned row = top + wy + j * 16 + lane / 4 + i / 2 * 8;
                unsigned col = left + wx + l * 8 + lane % 4 * 2 + i % 2;
                if (row >= m || col >= n) continue;
                Piece<PAIR>* at = (Piece<PAIR>*)&c[(size_t)row * ldc + col];
                Piece<PAIR> found = beta == 0 ? Piece<PAIR>{} : *at;
                for (int x = 0; x < PAIR; ++x) {
                    float value = alpha * sum[j][l][i + x];
                    found.x[x] = to_half(beta == 0 ? value : value + beta * to_float(found.x[x]));
                }
                *at = found;
            }
        }
    }
}

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) tensor_core(
    int m, int n, int k, float alpha, const half_t* a, int lda, const half_t* b, int ldb,
    float beta, half_t* c, int ldc)
{
    // Every row is 16-byte aligned, and no piece of 16 bytes reaches past a row's end.
    bool aligned = ((size_t)a | (size_t)b | (size_t)c) % 16 == 0 && (lda | ldb | ldc | n | k) % WIDTH == 0;
    if (aligned) product<WIDTH>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    else product<1>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
