// What the kernel by tensor cores holds in registers: sums of products of double, and what a lane reads
// of A and B for some of them.
//
// Macros: those of dmma.cu.
#include "../ptx/mma.cuh"

constexpr int WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr int WARPS = WARPS_M * WARPS_N, THREADS = 32 * WARPS;
// Whether a tile's lines lie along k in shared memory; each thread's copies can turn them round.
constexpr bool TILE_A_K_MAJOR = TMA && A_K_MAJOR, TILE_B_K_MAJOR = TMA && B_K_MAJOR;
// A product takes 16 lines of one matrix, the first, and 8 of the other. A lane reads two lines at once
// where they are neighbours, or else two of k: all of k that it needs if the first's are neighbours. So
// B is the first where only A's lines lie along k.
constexpr bool SWAPPED = TILE_A_K_MAJOR && !TILE_B_K_MAJOR;
constexpr bool FIRST_K_MAJOR = TILE_A_K_MAJOR && TILE_B_K_MAJOR;
constexpr bool SECOND_K_MAJOR = TILE_A_K_MAJOR || TILE_B_K_MAJOR;
constexpr int FIRSTS = (SWAPPED ? WARP_N : WARP_M) / 16, SECONDS = (SWAPPED ? WARP_M : WARP_N) / 16;
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0);

struct __align__(16) Pair { double x[2]; };

typedef double Sums[FIRSTS][SECONDS][2][4];

// Which of 16 lines is the ``i``th of the first 8, or of the others.
template <bool K_MAJOR> __device__ inline unsigned line_of(unsigned i, int half) {
    return K_MAJOR ? i + 8 * half : 2 * i + half;
}

// What a lane needs of 8 of k: its two lines of each 16, at its two k.
struct Factors {
    double x[FIRSTS][2][2], y[SECONDS][2][2];
};
__device__ inline void multiply_add(Sums& sum, const Factors& of) {
    #pragma unroll
    for (int i = 0; i < FIRSTS; ++i)
        #pragma unroll
        for (int j = 0; j < 2 * SECONDS; ++j)
            mma_m16n8k8(sum[i][j / 2][j % 2], of.x[i], of.y[j / 2][j % 2]);
}
