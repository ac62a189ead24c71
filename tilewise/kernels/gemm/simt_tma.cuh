// The mainloop of simt.cuh with tiles loaded by TMA, which one thread starts (compute capability
// 9.0).
#include "simt.cuh"
#include "map_matrix.cuh"

// A tile in shared memory as TMA writes it: a box of COUNT lines. A K-major box is swizzled: the
// 16-byte pieces of a line are permuted by the number of the 128 bytes that the line lies in, which
// hold the lines of all lanes for one index of a thread's.
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
    static_assert(COUNT * sizeof(real) > 128);  // narrower rows would be swizzled
    static __device__ void copy(unsigned to, const MapMatrix& x, int line, int k, unsigned barrier) {
        tma_load<false>(to, x.map, line, k, x.number, barrier, 0);
    }
};

// Elements of a stage: the tiles, and the mbarrier that counts their bytes. Swizzled boxes are
// aligned to SWIZZLED bytes.
constexpr int SWIZZLED = 1024;
template <typename TileA, typename TileB>
constexpr int TMA_STAGE = TileA::SIZE + TileB::SIZE + SWIZZLED / sizeof(real);

// As ``multiply``. ``shared`` has STAGES times TMA_STAGE elements and is aligned to SWIZZLED bytes.
// Beyond k the last k-step is zeros; ``end`` is k, or a multiple of BLOCK_K from ``begin``.
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
    __syncthreads();  // the barriers are initialized
    u32 parity = 1;  // of the barriers; flips each time round the ring
    auto wait = [&](int stage) {
        if (stage == 0) parity ^= 1;
        fence_proxy_async();  // orders this thread's reads ahead of the copies that overwrite them
        mbarrier_wait(first + stage * sizeof(real) + BYTES, parity);
        __syncthreads();
    };
    add_k_steps<TileA, TileB, SIZE>(sum, shared, k_steps, copy, wait);
}
