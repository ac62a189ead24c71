// The mainloop of dmma.cu with tiles loaded by TMA.
#include "dmma.cuh"
#include "map_matrix.cuh"

constexpr int LINE = 128, BLOCK_K = LINE / 8;  // bytes of the swizzle, and their elements
constexpr int STAGE = (BLOCK_M + BLOCK_N) * LINE, SHARED = STAGES * STAGE, ALIGNED = 1024;  // bytes
// A stage is filled again LAG k-steps after its use: with two, hardly any warp waits for that.
constexpr int LAG = STAGES > 4 ? 2 : 1;
static_assert(STAGES > LAG);

// Loads a tile of COUNT lines and BLOCK_K of k. In shared memory a row of LINE bytes is one line
// (K-major), or 16 lines at one k (MN-major); its 16-byte pieces are swizzled by the row's number
// modulo 8.
template <int COUNT, bool K_MAJOR>
__device__ inline void copy_tile(u32 to, const TensorMap& map, int line, int k, int matrix,
                                 u32 barrier) {
    #pragma unroll
    for (int i = 0; i < (K_MAJOR ? 1 : COUNT / 16); ++i)
        tma_load<false>(to + 16 * i * LINE, map, K_MAJOR ? k : line + 16 * i, K_MAJOR ? line : k, matrix,
                        barrier, 0);
}

// For lane 4 g + t. At each of two steps a lane takes two of the BLOCK_K, any two that are the same
// for both operands. With these, lanes read from all banks, and the offsets of the steps differ by
// an exclusive or.
__device__ inline unsigned first_k(unsigned t) {
    return FIRST_K_MAJOR ? 8 * (t / 2) + t % 2 : 4 * t + 2 * (t / 2);
}

// The offset in a tile, in bytes, of a lane's first element of 16 lines.
template <bool K_MAJOR> __device__ inline unsigned first_place() {
    const unsigned g = threadIdx.x % 32 / 4, k = first_k(threadIdx.x % 4);
    return K_MAJOR ? g * LINE + (k / 2 ^ g) * 16 + k % 2 * 8 : k * LINE + (g ^ k % 8) * 16;
}
// A lane's two of 16 lines at a step's two k. ``place`` is the offset of its first element.
template <bool K_MAJOR>
__device__ inline void read_lines(double (&x)[2][2], const char* shared, unsigned place, int step) {
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (!K_MAJOR) {
            const Pair found = *(const Pair*)(shared + (place ^ (2 * step + i) * (LINE + 16)));
            x[0][i] = found.x[0], x[1][i] = found.x[1];
        } else if (!FIRST_K_MAJOR) *(Pair*)x[i] = *(const Pair*)(shared + (place ^ step * 16) + 8 * i * LINE);
        else
            #pragma unroll
            for (int e = 0; e < 2; ++e)
                x[i][e] = *(const double*)(shared + (place ^ (2 * step + e) * 16) + 8 * i * LINE);
    }
}

// Adds the block's tile of A B at (top, left), for k from ``begin`` to ``end``, to ``sum``; beyond
// k TMA reads zeros. ``shared`` has SHARED bytes.
__device__ inline void multiply(Sums& sum, const char* shared, const MapMatrix& a, const MapMatrix& b,
                                unsigned top, unsigned left, unsigned begin, unsigned end) {
    __shared__ u64 full[STAGES], empty[STAGES];
    const int k_steps = begin < end ? (end - begin - 1) / BLOCK_K + 1 : 0;
    const u32 tiles = shared_address(shared);
    const u32 full_at = shared_address(full), empty_at = shared_address(empty);
    auto copy = [&](int stage, int k_step) {
        if (k_step >= k_steps) return;
        const u32 to = tiles + stage * STAGE, barrier = full_at + 8 * stage;
        const int k = begin + k_step * BLOCK_K;
        mbarrier_arrive_expect_tx(barrier, STAGE);
        copy_tile<BLOCK_M, A_K_MAJOR>(to, a.map, top, k, a.number, barrier);
        copy_tile<BLOCK_N, B_K_MAJOR>(to + BLOCK_M * LINE, b.map, left, k, b.number, barrier);
    };
    if (threadIdx.x == 0) {
        #pragma unroll
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(full_at + 8 * i, 1);
            mbarrier_init(empty_at + 8 * i, WARPS);
        }
        mbarrier_init_fence();
        #pragma unroll
        for (int i = 0; i < STAGES - LAG; ++i) copy(i, i);
    }
    __syncthreads();  // the barriers are initialized

    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned row = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    const unsigned place_a = row * LINE, place_b = (BLOCK_M + column) * LINE;
    const unsigned first = (SWAPPED ? place_b : place_a) + first_place<FIRST_K_MAJOR>();
    const unsigned second = (SWAPPED ? place_a : place_b) + first_place<SECOND_K_MAJOR>();
    int stage = 0;
    u32 parity = 0;
    for (int k_step = 0; k_step < k_steps; ++k_step) {
        mbarrier_wait(full_at + stage * 8, parity);
        #pragma unroll
        for (int step = 0; step < BLOCK_K / 8; ++step) {
            Factors of;
            #pragma unroll
            for (int i = 0; i < FIRSTS; ++i)
                read_lines<FIRST_K_MAJOR>(of.x[i], shared, stage * STAGE + first + 16 * i * LINE, step);
            #pragma unroll
            for (int j = 0; j < SECONDS; ++j)
                read_lines<SECOND_K_MAJOR>(of.y[j], shared, stage * STAGE + second + 16 * j * LINE, step);
            multiply_add(sum, of);
            if (step == BLOCK_K / 8 - 1) {
                // The arrival does not wait for this warp's reads of shared memory;
                // without the fence, copies have overtaken them.
                fence_proxy_async();
                __syncwarp();
                if (lane == 0) mbarrier_arrive<false>(empty_at + 8 * stage);
            }
            // The next copies start behind the multiply-adds of the first step, which
            // go on meanwhile. Each k-step it is another warp's turn, or one warp would
            // fall behind the others.
            if (step == 0 && lane == 0 && warp == k_step % WARPS) {
                const int next = stage < LAG ? stage - LAG + STAGES : stage - LAG;
                if (k_step >= LAG) mbarrier_wait(empty_at + 8 * next, stage < LAG ? parity ^ 1 : parity);
                copy(next, k_step + STAGES - LAG);
            }
        }
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
}
