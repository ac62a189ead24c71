// D = alpha A B + beta C of double by tensor cores, batched (compute capability 9.0). A block
// computes a tile of D: blocks along x go through the tiles of one matrix of the batch after
// another. Blocks along y divide k (split-K): each stores partial sums, which splitk_sum.cu adds
// up.
//
// Macros: BLOCK_M, BLOCK_N, a block's tile of D; WARPS_M, WARPS_N, warps along M and N; STAGES;
// BLOCKS, the least number of blocks a multiprocessor must hold; A_K_MAJOR and B_K_MAJOR (1 where k
// is the contiguous dimension, 0 for MN-major); TMA, 1 to load tiles by TMA (dmma_tma.cuh), 0 by
// cp.async (dmma_cp_async.cuh); OVERLAP as in launch.cuh.
#if TMA
#include "dmma_tma.cuh"
#else
#include "dmma_cp_async.cuh"
#endif
#include "epilogue.cuh"
#include "product.cuh"

typedef Product<double, double, double> DoubleProduct;

// A warp's accumulators go through shared memory, 16 lines of the mma's first operand at a time, so
// that neighbouring lanes store neighbouring elements of D.
constexpr int ROWS = SWAPPED ? WARP_M : 16, COLUMNS = SWAPPED ? 16 : WARP_N;
constexpr int PITCH = COLUMNS + (SECOND_K_MAJOR && !SWAPPED ? 8 : 2);  // stores of pairs use all banks
static_assert(WARPS * ROWS * PITCH * sizeof(double) <= SHARED);

// Stores alpha A B to a D with contiguous rows. The accumulators at ``sums`` are those of D's rows from
// ``top`` on and columns from ``left`` on. A lane stores WIDTH elements at once.
template <int WIDTH>
__device__ inline void store_lines(const double* sums, const DoubleProduct& p, const Matrix<double>& d,
                                   unsigned top, unsigned left) {
    // A lane has ACROSS times WIDTH elements of every DOWNth row.
    constexpr int SPAN = 32 * WIDTH, ACROSS = COLUMNS > SPAN ? COLUMNS / SPAN : 1;
    constexpr int DOWN = COLUMNS > SPAN ? 1 : SPAN / COLUMNS;
    static_assert(ROWS % DOWN == 0 && 8 % DOWN == 0 && (COLUMNS % SPAN == 0 || SPAN % COLUMNS == 0));
    const unsigned lane = threadIdx.x % 32 * WIDTH, line = lane / COLUMNS, column = lane % COLUMNS;
    const unsigned y = top + line * (SWAPPED || FIRST_K_MAJOR ? 1 : 2), x = left + column;
    double* const to = d.pointer + y * d.row_stride + x;
    const double* from = sums + line * PITCH + column;
    #pragma unroll
    for (int row = 0; row < ROWS; row += DOWN) {
        // The 16 rows lie in the order of the mma's two halves of 8.
        const int under = SWAPPED ? row : line_of<FIRST_K_MAJOR>(row % 8, row / 8);
        if (y + under >= p.m) continue;
        #pragma unroll
        for (int i = 0; i < ACROSS; ++i) {
            double* const at = to + under * d.row_stride + i * SPAN;
            const double* of = from + row * PITCH + i * SPAN;
            if (WIDTH == 2 && x + i * SPAN + 2 <= p.columns) {
                const Pair found = *(const Pair*)of;
                *(Pair*)at = {scaled(found.x[0], p.alpha), scaled(found.x[1], p.alpha)};
            } else if (x + i * SPAN < p.columns) {
                *at = scaled(*of, p.alpha);
            }
        }
    }
}

// The epilogue for any strides of D, with C and with the caller's function.
__device__ inline void store_any(const double* sums, const DoubleProduct& p, const Matrix<const double>& c,
                                 const Matrix<double>& d, unsigned batch, unsigned top, unsigned left,
                                 const Fused& fused) {
    #pragma unroll 4
    for (int at = threadIdx.x % 32; at < ROWS * COLUMNS; at += 32) {
        const unsigned row = at / COLUMNS, x = left + at % COLUMNS;
        const unsigned y = top + (SWAPPED ? row : line_of<FIRST_K_MAJOR>(row % 8, row / 8));
        if (y >= p.m || x >= p.columns) continue;
        // Partial sums have more columns than C, and no C is added to them.
        double found = epilogue(sums[row * PITCH + at % COLUMNS], p.alpha, p.beta,
                                [&] { return *c.at(y, x); }, [&] { return x < p.n; });
        if (FUSES && x < p.n) found = fused(found, batch, y, x);
        *d.at(y, x) = found;
    }
}

__device__ inline void store(const Sums& sum, char* shared, const DoubleProduct& p, const Place& at,
                             const Fused& fused) {
    const Matrix<const double> c = p.c[at.batch];
    Matrix<double> d = p.d[at.batch];
    d.pointer += at.part * p.part_stride;
    const bool is_plain = !FUSES && p.beta == 0 && d.column_stride == 1;
    const bool by_pairs = d.row_stride % 2 == 0 && (size_t)d.pointer % 16 == 0;
    const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, warp = threadIdx.x / 32;
    const unsigned top = at.top + warp % WARPS_M * WARP_M, left = at.left + warp / WARPS_M * WARP_N;
    double* sums = (double*)shared + warp * ROWS * PITCH;
    __syncthreads();  // all threads have read the tiles
    #pragma unroll
    for (int i = 0; i < FIRSTS; ++i) {
        #pragma unroll
        for (int j = 0; j < SECONDS; ++j)
            #pragma unroll
            for (int u = 0; u < 4; ++u) {  // two neighbours in a row of D
                // The coordinates of the pair's first element in the mma's
                // operands: which of a lane's two lines of the first operand, and
                // which half and which of the two lines of the second.
                const int of_first = SWAPPED ? 0 : u % 2, half = SECOND_K_MAJOR ? u / 2 : 0;
                const int of_two = SWAPPED ? u % 2 : SECOND_K_MAJOR ? 0 : u / 2;
                const double (&of)[2][4] = sum[i][j];
                const double next = SWAPPED ? of[half][2 + of_two]
                    : SECOND_K_MAJOR ? of[half][2 * of_first + 1] : of[1][2 * of_first + of_two];
                const unsigned other = 16 * j + line_of<SECOND_K_MAJOR>(2 * t + of_two, half);
                const unsigned place = SWAPPED ? other * PITCH + line_of<FIRST_K_MAJOR>(g, 0)
                    : (g + 8 * of_first) * PITCH + other;
                *(Pair*)(sums + place) = {of[half][2 * of_first + of_two], next};
            }
        __syncwarp();
        const unsigned y = top + (SWAPPED ? 0 : 16 * i), x = left + (SWAPPED ? 16 * i : 0);
        if (!is_plain) store_any(sums, p, c, d, at.batch, y, x, fused);
        else if (by_pairs) store_lines<2>(sums, p, d, y, x);
        else store_lines<1>(sums, p, d, y, x);
        __syncwarp();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
gemm_dmma(const __grid_constant__ DoubleProduct p
#if TMA
          , const __grid_constant__ TensorMap of_a, const __grid_constant__ TensorMap of_b
#endif
          FUSED_PARAMETER) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ __align__(ALIGNED) char shared[SHARED];
#else  // ptxas takes at most 48 KB here, so launches ask for SHARED bytes
    extern __shared__ __align__(ALIGNED) char shared[];
#endif
    begin_launch();
    const Place at(p, BLOCK_M, BLOCK_N);
    Sums sum = {};
#if TMA
    // If all of the batch share a matrix, the tensor map has only that one.
    const MapMatrix a = {of_a, p.a.batch_stride ? (int)at.batch : 0};
    const MapMatrix b = {of_b, p.b.batch_stride ? (int)at.batch : 0};
#else
    const Lines a = {p.a.pointer + at.batch * p.a.batch_stride, p.a.pitch, p.a.count};
    const Lines b = {p.b.pointer + at.batch * p.b.batch_stride, p.b.pitch, p.b.count};
#endif
    multiply(sum, shared, a, b, at.top, at.left, at.begin, at.end);
    store(sum, shared, p, at, FUSED);
}
