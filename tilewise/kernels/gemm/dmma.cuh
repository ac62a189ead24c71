// The accumulators and the fragments of dmma.cu.
//
// Macros: those of dmma.cu.
#include "../ptx/mma.cuh"

constexpr int WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr int WARPS = WARPS_M * WARPS_N, THREADS = 32 * WARPS;
// Whether a tile is K-major in shared memory. cp.async transposes on the way.
constexpr bool TILE_A_K_MAJOR = TMA && A_K_MAJOR, TILE_B_K_MAJOR = TMA && B_K_MAJOR;
// An mma takes 16 lines of its first operand and 8 of its second. A lane reads two neighbouring
// lines at once (MN-major), or two neighbouring k (K-major): if the first operand is MN-major, all
// that it needs of k. So the operands are swapped, B first, if only A is K-major.
constexpr bool SWAPPED = TILE_A_K_MAJOR && !TILE_B_K_MAJOR;
constexpr bool FIRST_K_MAJOR = TILE_A_K_MAJOR && TILE_B_K_MAJOR;
constexpr bool SECOND_K_MAJOR = TILE_A_K_MAJOR || TILE_B_K_MAJOR;
constexpr int FIRSTS = (SWAPPED ? WARP_N : WARP_M) / 16, SECONDS = (SWAPPED ? WARP_M : WARP_N) / 16;
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0);

struct __align__(16) Pair { double x[2]; };

typedef double Sums[FIRSTS][SECONDS][2][4];

// The number among 16 lines of the ``i``th line of the first half of 8, or of the second.
template <bool K_MAJOR> __device__ inline unsigned line_of(unsigned i, int half) {
    return K_MAJOR ? i + 8 * half : 2 * i + half;
}

// A lane's fragments for 8 of k: of each 16 lines its two, at its two k.
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
