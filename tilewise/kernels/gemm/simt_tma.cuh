// The same with bulk tensor copies (TMA), which one thread asks for; on Hopper GPUs.
#include "simt.cuh"
#include "map_matrix.cuh"

// As a tensor map's box of COUNT lines lies in shared memory. Along k a line's pieces are swizzled, by
// the 128 bytes that it lies in: those are the lanes' lines, all of one index of a thread's.
template <int COUNT, bool K_MAJOR, int LANES> struct TmaTile;

template <int COUNT, int LANES> struct TmaTile<COUNT, true, LANES> {
    static constexpr int NEIGHBOURS = 1, K_STEPS = PIECE, SIZE = COUNT * BLOCK_K, PIECES = BLOCK_K / PIECE;
    static_assert(LANES * BLOCK_K * sizeof(real) == 128 && THREAD_M % PIECES == 0);
    static __device__ unsigned first(unsigned line) { return line * BLOCK_K; }
    static __device__ constexpr int next(int step, int i) {
        return i * LANES * BLOCK_K + (step / PIECE ^ i % PIECES) * PIECE;
    }
    static __device__ void copy(unsigned to, const MapMatrix& x, int line, int k, unsigned barrier) {
        tma_load<false>(to, x.map, k, line, x.number, barrier, 0);
    }
};

template <int COUNT, int LANES> struct TmaTile<COUNT, false, LANES> : MnMajorTile<COUNT, LANES> {
    static constexpr int SIZE = COUNT * BLOCK_K;
    static_assert(COUNT * sizeof(real) > 128);  // or it would be swizzled
    static __device__ void copy(unsigned to, const MapMatrix& x, int line, int k, unsigned barrier) {
        tma_load<false>(to, x.map, line, k, x.number, barrier, 0);
    }
};

// Elements of a stage: the tiles, and a barrier that counts their bytes. What is swizzled begins at
// a multiple of SWIZZLED bytes.
constexpr int SWIZZLED = 1024;
template <typename TileA, typename TileB>
constexpr int TMA_STAGE = TileA::SIZE + TileB::SIZE + SWIZZLED / sizeof(real);

// As multiply; ``shared`` has STAGES times TMA_STAGE elements and is aligned to SWIZZLED bytes. Of the
// last phase, what is beyond k is zeros; ``end`` is a multiple of BLOCK_K from ``begin``, or k.
template <typename TileA, typename TileB>
__device__ inline void multiply_tma(real (&sum)[THREAD_M][THREAD_N], real* shared, const MapMatrix& a,
                                     const MapMatrix& b, unsigned top, unsigned left, unsigned begin,
                                     unsigned end) {
    static_assert(TileA::SIZE * sizeof(real) % SWIZZLED == 0 && TileB::SIZE * sizeof(real) % SWIZZLED == 0);
    if (begin >= end) return;
    constexpr int SIZE = TMA_STAGE<TileA, TileB>, BYTES = (TileA::SIZE + TileB::SIZE) * sizeof(real);
    const int k_steps = (end - begin - 1) / BLOCK_K + 1;
    const u32 first = shared_address(shared);
    auto copy = [&](int stage, int k_step) {
        if (threadIdx.x == 0 && k_step < k_steps) {
            const u32 to = first + stage * sizeof(real), barrier = to + BYTES;
            const int k = begin + k_step * BLOCK_K;
            mbarrier_arrive_expect_tx(barrier, BYTES);
            TileA::copy(to, a, top, k, barrier);
            TileB::copy(to + TileA::SIZE * sizeof(real), b, left, k, barrier);
        }
    };
    if (threadIdx.x == 0) {
        #pragma unroll
        for (int i = 0; i < STAGES; ++i) mbarrier_init(first + i * SIZE * sizeof(real) + BYTES, 1);
        mbarrier_init_fence();
    }
    #pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) copy(i * SIZE, i);
    __syncthreads();  // the barriers are there
    u32 parity = 1;  // of the stages' barriers, as long as they are gone through once
    auto wait = [&](int stage) {
        if (stage == 0) parity ^= 1;
        fence_proxy_async();  // what this thread read is read, ahead of copies to there
        mbarrier_wait(first + stage * sizeof(real) + BYTES, parity);
        __syncthreads();
    };
    add_k_steps<TileA, TileB, SIZE>(sum, shared, k_steps, copy, wait);
}
