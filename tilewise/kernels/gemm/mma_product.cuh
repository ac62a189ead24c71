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

#include "mma_unaligned.cuh"

typedef Tile<BLOCK_M, A_K_MAJOR> TileA;
typedef Tile<BLOCK_N, B_K_MAJOR> TileB;
typedef Copier<TileA, A_K_MAJOR, A_WIDTH, A_PARTIAL, A_UNALIGNED> CopierA;
typedef Copier<TileB, B_K_MAJOR, B_WIDTH, B_PARTIAL, B_UNALIGNED> CopierB;
// A stage: A's tile, B's, and where they are unaligned the last piece of each of their rows.
constexpr int TILES = TileA::BYTES + TileB::BYTES, EXTRAS_A = A_UNALIGNED ? 16 * TileA::ROWS : 0;
constexpr int STAGE = TILES + EXTRAS_A + (B_UNALIGNED ? 16 * TileB::ROWS : 0), STEPS = BLOCK_K / 16;
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
    CopierA copier_a(a, at.top, at.begin, at.end, TILES);
    CopierB copier_b(b, at.left, at.begin, at.end, TileB::BYTES + EXTRAS_A);
    auto copy = [&](u32 stage, bool is_first = false) {
        copier_a.copy(stage, is_first);
        copier_b.copy(stage + TileA::BYTES, is_first);
        cp_async_commit_group();
    };
    auto wait = [&](u32 stage) {  // until its tiles are there, and all threads have read those before
        cp_async_wait_group<STAGES - 2>();
        copier_a.realign(stage);
        copier_b.realign(stage + TileA::BYTES);
        __syncthreads();
    };
    #pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) copy(shared + i * STAGE, i == 0);
    const unsigned of_a = TileA::template first<true>(top), of_b = TileB::template first<false>(left);
    const u32 last = shared + (STAGES - 1) * STAGE;
    u32 reading = shared, writing = last;
    wait(reading);
    Fragments fragments[2];
    fragments[0].load(reading, of_a, of_b, 0);
    for (unsigned k_steps = (at.end - at.begin - 1) / BLOCK_K + 1; k_steps > 0; --k_steps) {
        #pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            if (i == STEPS - 1) {
                reading = reading == last ? shared : reading + STAGE;
                wait(reading);
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

#include "mma_store.cuh"
