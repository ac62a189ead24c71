// The mainloop of dmma.cu with tiles copied by cp.async, one element or 16 bytes at a time: for any
// layout and alignment.
//
// Macros besides: BLOCK_K and DOUBLE_BUFFER of pipeline.cuh; A_WIDTH, B_WIDTH, elements of a copy.
#include "dmma.cuh"
#include "pipeline.cuh"

constexpr int STEP_K = 8;
// Lanes read pairs of lines at four k: with this padding from all banks.
typedef Copier<BLOCK_M, A_K_MAJOR, A_WIDTH, PADDING> TileA;
typedef Copier<BLOCK_N, B_K_MAJOR, B_WIDTH, PADDING> TileB;
static_assert(BLOCK_K % STEP_K == 0);
constexpr int SHARED = STAGES * STAGE<TileA, TileB> * sizeof(double), ALIGNED = 16;

// A lane's fragments of COUNT times 16 lines, at its two k of a step. ``first`` points at its first
// lines.
template <int COUNT, int PITCH>
__device__ inline void read_lines(double (&x)[COUNT][2][2], const double* first, int step) {
    #pragma unroll
    for (int i = 0; i < COUNT; ++i)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
            const Pair found = *(const Pair*)(first + (STEP_K * step + 4 * e) * PITCH + 16 * i);
            x[i][0][e] = found.x[0], x[i][1][e] = found.x[1];
        }
}

// Adds the block's tile of A B at (top, left), for k from ``begin`` to ``end``, to ``sum``.
// ``shared`` has SHARED bytes.
__device__ inline void multiply(Sums& sum, char* shared, const Lines& a, const Lines& b, unsigned top,
                                unsigned left, unsigned begin, unsigned end) {
    const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, warp = threadIdx.x / 32;
    double* tiles = (double*)shared;
    const double* of_a = tiles + t * TileA::PITCH + warp % WARPS_M * WARP_M + 2 * g;
    const double* of_b = tiles + TileA::SIZE + t * TileB::PITCH + warp / WARPS_M * WARP_N + 2 * g;
    auto go = [&](int k_steps, const auto& copy, const auto& wait) {
        Factors of[2];  // for DOUBLE_BUFFER: one is read while the other is used
        auto read = [&](int stage, int step) {
            read_lines<FIRSTS, TileA::PITCH>(of[step % 2].x, of_a + stage, step);
            read_lines<SECONDS, TileB::PITCH>(of[step % 2].y, of_b + stage, step);
        };
        auto add = [&](int step) { multiply_add(sum, of[step % 2]); };
        mainloop<BLOCK_K / STEP_K, STAGE<TileA, TileB>>(k_steps, read, add, copy, wait);
    };
    copy_k_steps<TileA, TileB>(tiles, a, b, top, left, begin, end, go);
}
