// A block's tile of a product by mma.sync: the mainloop, and how its sums are stored (compute capability
// 8.0).
//
// cp.async copies tiles of A and B to a ring of STAGES stages of shared memory, STAGES - 1 k-steps ahead.
// Each warp computes a tile of its own, and loads the fragments of 16 of k while it multiplies those
// before.
//
// Macros: those of mma.cu. Where a block's tile lies, ``at``, it says by the fields of Place (product.cuh).
#pragma once
#include "../ptx/mma.cuh"
#include "epilogue.cuh"
#include "matrix.cuh"

constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS = WARPS_M * (BLOCK_N / WARP_N), THREADS = 32 * WARPS;

#include "mma_tiles.cuh"

typedef Tile<BLOCK_M, A_K_MAJOR> TileA;
typedef Tile<BLOCK_N, B_K_MAJOR> TileB;
constexpr int STAGE = TileA::BYTES + TileB::BYTES, STEPS = BLOCK_K / 16;
constexpr int ROWS = WARP_M / 16, COLUMNS = WARP_N / 16;  // of 16 x 16 sums in a warp's tile
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0 && WARP_M % 16 == 0 && WARP_N % 16 == 0);
static_assert(STEPS % 2 == 0 && STAGES > 1);

// Of a warp: 16 x 8 each, two side by side.
typedef float Sums[ROWS][COLUMNS][2][4];

// A warp's fragments at 16 of k.
struct Fragments {
    u32 a[ROWS][4], b[COLUMNS][4];

    // ``of_a`` and ``of_b`` are where the lane's first rows are in the tiles of the stage.
    __device__ void load(u32 stage, unsigned of_a, unsigned of_b, int step) {
        #pragma unroll
        for (int i = 0; i < ROWS; ++i)
            ldmatrix_x4<!A_K_MAJOR>(a[i], stage + TileA::next(of_a, step, i));
        #pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
            ldmatrix_x4<!B_K_MAJOR>(b[j], stage + TileA::BYTES + TileB::next(of_b, step, j));
    }
    // There and back, so that consecutive products share a fragment.
    __device__ void multiply_add(Sums& sum) const {
        #pragma unroll
        for (int i = 0; i < ROWS; ++i)
            #pragma unroll
            for (int j = 0; j < 2 * COLUMNS; ++j) {
                const int at = i % 2 ? 2 * COLUMNS - 1 - j : j;
                const u32* of_b = b[at / 2] + at % 2 * 2;
                mma_m16n8k16(sum[i][at / 2][at % 2], a[i][0], a[i][1], a[i][2], a[i][3], of_b[0], of_b[1]);
            }
    }
};

// Adds the warp's tile of A B at (top, left) of the block's, for k from ``begin`` to ``end``, to ``sum``.
template <typename At>
__device__ inline void multiply(Sums& sum, u32 shared, const Lines& a, const Lines& b, const At& at,
                                unsigned top, unsigned left) {
    if (at.begin >= at.end) return;  // nothing may be read
    Copier<TileA, A_K_MAJOR, A_WIDTH, A_PARTIAL> copier_a(a, at.top, at.begin, at.end);
    Copier<TileB, B_K_MAJOR, B_WIDTH, B_PARTIAL> copier_b(b, at.left, at.begin, at.end);
    auto copy = [&](u32 stage) {
        copier_a.copy(stage);
        copier_b.copy(stage + TileA::BYTES);
        cp_async_commit_group();
    };
    auto wait = [] {  // until the next stage's tiles are there, and all threads have read those before
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
    };
    #pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) copy(shared + i * STAGE);
    const unsigned of_a = TileA::template first<true>(top), of_b = TileB::template first<false>(left);
    const u32 last = shared + (STAGES - 1) * STAGE;
    u32 reading = shared, writing = last;
    wait();
    Fragments fragments[2];
    fragments[0].load(reading, of_a, of_b, 0);
    for (unsigned k_steps = (at.end - at.begin - 1) / BLOCK_K + 1; k_steps > 0; --k_steps) {
        #pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            if (i == STEPS - 1) {
                reading = reading == last ? shared : reading + STAGE;
                wait();
            }
            // After the last k-step, of zeros that are not used.
            fragments[(i + 1) % 2].load(reading, of_a, of_b, (i + 1) % STEPS);
            if (i == 0) {
                copy(writing);
                writing = writing == last ? shared : writing + STAGE;
            }
            fragments[i % 2].multiply_add(sum);
        }
    }
    cp_async_wait_group<0>();
}

// A warp's sums go through shared memory, 16 rows of D at a time, so that neighbouring lanes store
// neighbouring elements of D. The pitch lets the stores of pairs use all banks.
constexpr int PITCH = WARP_N + 8, PIECE = 4;
static_assert(WARPS * 16 * PITCH * sizeof(float) <= STAGES * STAGE);
struct alignas(PIECE * sizeof(OUTPUT)) Piece { OUTPUT x[PIECE]; };
template <int COUNT> struct alignas(COUNT * sizeof(float)) Numbers { float x[COUNT]; };

// The epilogue of the 16 rows of sums at ``sums``, which are rows from ``top`` and columns from ``left``
// of D. A lane stores WIDTH elements at once.
template <int WIDTH, bool READS_C, typename P>
__device__ inline void store_rows(const float* sums, const P& p, const Matrix<const OUTPUT>& c,
                                  const Matrix<OUTPUT>& d, unsigned batch, unsigned top, unsigned left,
                                  const Fused& fused) {
    const unsigned at = threadIdx.x % 32 * WIDTH, y = at / WARP_N, x = at % WARP_N;
    top += y, left += x;
    sums += y * PITCH + x;
    OUTPUT* to = d.at(top, left);
    #pragma unroll(WIDTH > 1 && !READS_C && !FUSES ? 16 : 4)
    for (int i = 0; i < 16 * WARP_N; i += 32 * WIDTH) {
        const unsigned down = i / WARP_N, across = i % WARP_N;
        if (top + down >= p.m || left + across >= p.columns) continue;
        const Numbers<WIDTH> sum = *(const Numbers<WIDTH>*)(sums + down * PITCH + across);
        Piece piece;
        #pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            float value = scaled(sum.x[j], p.alpha);
            if ((READS_C || FUSES) && left + across + j < p.n) {
                if (READS_C) value = plus_c(value, p.beta, to_float(*c.at(top + down, left + across + j)));
                value = fused(value, batch, top + down, left + across + j);
            }
            piece.x[j] = from_float<OUTPUT>(value);
        }
        OUTPUT* there = to + down * d.row_stride + across * d.column_stride;
        if (WIDTH == PIECE && left + across + PIECE <= p.columns) *(Piece*)there = piece;
        else
            #pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                if (left + across + j < p.columns) there[j * d.column_stride] = piece.x[j];
    }
}

template <typename P, typename At>
__device__ inline void store(const Sums& sum, float* sums, const P& p, const At& at, unsigned top,
                             unsigned left, const Fused& fused) {
    const Matrix<const OUTPUT> c = p.c[at.batch];
    Matrix<OUTPUT> d = p.d[at.batch];
    d.pointer += at.part * p.part_stride;
    const bool by_pieces = d.column_stride == 1 && d.row_stride % PIECE == 0
        && (size_t)d.pointer % sizeof(Piece) == 0;
    const unsigned lane = threadIdx.x % 32;
    float* own = sums + threadIdx.x / 32 * 16 * PITCH;
    float2* to = (float2*)(own + lane / 4 * PITCH + lane % 4 * 2);
    __syncthreads();  // all threads have read the tiles
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        #pragma unroll
        for (int j = 0; j < 2 * COLUMNS; ++j) {
            const float* of = sum[i][j / 2][j % 2];
            to[j * 4] = {of[0], of[1]};
            to[j * 4 + 4 * PITCH] = {of[2], of[3]};  // 8 rows further on
        }
        __syncwarp();
        const unsigned y = top + 16 * i;
        if (by_pieces && p.beta == 0) store_rows<PIECE, false>(own, p, c, d, at.batch, y, left, fused);
        else if (p.beta == 0) store_rows<1, false>(own, p, c, d, at.batch, y, left, fused);
        else if (by_pieces) store_rows<PIECE, true>(own, p, c, d, at.batch, y, left, fused);
        else store_rows<1, true>(own, p, c, d, at.batch, y, left, fused);
        __syncwarp();
    }
}
