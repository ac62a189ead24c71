// A multistage cp.async pipeline: a block's threads copy tiles of A and B to shared memory, STAGES
// - 1 k-steps ahead of their use. In shared memory tiles are MN-major: a row for each k.
//
// Macros: real, the elements' type; BLOCK_K, the depth of a tile; STAGES; DOUBLE_BUFFER, 1 to read
// fragments from shared memory one step ahead of their use. THREADS, of a block, is defined before
// this header.
#pragma once
#include "../ptx/cp_async.cuh"
#include "../ptx/shared.cuh"

constexpr int PIECE = 16 / sizeof(real);    // elements
constexpr int K_LANES = 32 / sizeof(real);  // lanes along k that read one 32-byte sector
constexpr int PADDING = 4;  // elements: lanes that write K_LANES of k of several lines use all banks

struct __align__(16) Piece { real x[PIECE]; };

// A as its rows, or B as its columns: lines of k elements. Either the elements of a line are
// contiguous (K-major) and ``pitch`` leads from line to line, or those of the lines at one k are
// (MN-major) and ``pitch`` leads from k to k. Elements.
struct Lines {
    const real* pointer;
    long long pitch;
    unsigned count;
};

// The line to copy for line ``line`` of the tile that begins at ``first``. Past the last of
// ``count`` lines it is a line that exists, of the tile before or of this one; its products are not
// stored. Neighbouring threads keep neighbouring lines, because the hardware serializes copies from
// one address to many.
template <int COUNT> __device__ inline unsigned inside(unsigned first, unsigned line, unsigned count) {
    if (first + line < count) return first + line;
    return first ? first + line - COUNT : line % count;
}

__host__ __device__ constexpr int common_divisor(int a, int b) { return b ? common_divisor(b, a % b) : a; }

// Copies the tiles of COUNT lines of one k-step after another, WIDTH elements at a time. WIDTH > 1
// is 16 bytes: lines (or rows of k) are 16-byte aligned, and WIDTH divides the number of lines.
template <int COUNT, bool K_MAJOR, int WIDTH, int PAD = K_MAJOR ? PADDING : 0> struct Copier;

template <int COUNT, int PAD> struct Copier<COUNT, true, 1, PAD> {
    static constexpr int PITCH = COUNT + PAD, SIZE = PITCH * BLOCK_K;
    // Threads beyond one sector of each line take further sectors of the lines.
    static constexpr int SECTORS = THREADS / K_LANES > COUNT ? THREADS / K_LANES / COUNT : 1;
    static constexpr int AT_ONCE = THREADS / K_LANES / SECTORS, COPIES = COUNT / AT_ONCE;
    static_assert(COUNT % AT_ONCE == 0 && BLOCK_K % (SECTORS * K_LANES) == 0);
    const real* from[COPIES];
    unsigned to, k;

    __device__ Copier(const Lines& x, unsigned first, unsigned begin) {
        k = threadIdx.x % K_LANES + (SECTORS > 1 ? threadIdx.x / (K_LANES * AT_ONCE) * K_LANES : 0);
        const unsigned line = SECTORS > 1 ? threadIdx.x / K_LANES % AT_ONCE : threadIdx.x / K_LANES;
        to = k * PITCH + line;
        #pragma unroll
        for (int i = 0; i < COPIES; ++i)
            from[i] = x.pointer + inside<COUNT>(first, line + i * AT_ONCE, x.count) * x.pitch + begin + k;
    }
    // The next ``steps`` of k; unless ALL, zeros fill what BLOCK_K has more.
    template <bool ALL> __device__ void copy(real* tile, unsigned steps = BLOCK_K) {
        #pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            #pragma unroll
            for (int j = 0; j < BLOCK_K; j += SECTORS * K_LANES)
                cp_async<sizeof(real)>(tile + to + j * PITCH + i * AT_ONCE, from[i] + j,
                                         ALL || j + k < steps);
            from[i] += steps;
        }
    }
};

template <int COUNT, int WIDTH, int PAD> struct Copier<COUNT, false, WIDTH, PAD> {
    static constexpr int PITCH = COUNT + PAD, SIZE = PITCH * BLOCK_K;
    static constexpr int ACROSS = common_divisor(COUNT / WIDTH, THREADS);
    static constexpr int WIDE = COUNT / WIDTH / ACROSS, DOWN = THREADS / ACROSS;
    static constexpr int COPIES = BLOCK_K < DOWN ? 1 : BLOCK_K / DOWN;
    static_assert(THREADS % ACROSS == 0 && (BLOCK_K % DOWN == 0 || DOWN % BLOCK_K == 0));
    const real* from[WIDE];
    long long pitch;
    unsigned to, k;

    __device__ Copier(const Lines& x, unsigned first, unsigned begin) {
        const unsigned line = threadIdx.x % ACROSS * WIDTH;
        k = threadIdx.x / ACROSS;
        to = k * PITCH + line;
        pitch = x.pitch;
        #pragma unroll
        for (int i = 0; i < WIDE; ++i)
            from[i] = x.pointer + (begin + k) * pitch
                + inside<COUNT>(first, line + i * ACROSS * WIDTH, x.count);
    }
    template <bool ALL> __device__ void copy(real* tile, unsigned steps = BLOCK_K) {
        #pragma unroll
        for (int i = 0; i < WIDE; ++i) {
            #pragma unroll
            for (int j = 0; j < COPIES; ++j)
                if (DOWN <= BLOCK_K || k < BLOCK_K)
                    cp_async<WIDTH * sizeof(real)>(tile + to + j * DOWN * PITCH + i * ACROSS * WIDTH,
                                                     from[i] + j * DOWN * pitch,
                                                     ALL || k + j * DOWN < steps);
            from[i] += steps * pitch;
        }
    }
};

template <typename CopierA, typename CopierB> constexpr int STAGE = CopierA::SIZE + CopierB::SIZE;

// The mainloop over ``k_steps`` k-steps, each of which has STEPS inner steps. Tiles are in STAGES
// stages of shared memory that are SIZE elements apart. ``read(stage, step)`` reads the fragments
// of an inner step, ``add(step)`` multiplies them; ``copy(stage, k_step)`` starts the copies of a
// k-step's tiles to a stage. ``wait(stage)`` waits until a stage's tiles have arrived and all
// threads have finished reading the stage before.
template <int STEPS, int SIZE, typename Read, typename Add, typename Copy, typename Wait>
__device__ inline void mainloop(int k_steps, const Read& read, const Add& add, const Copy& copy,
                                  const Wait& wait) {
    constexpr int LAST = (STAGES - 1) * SIZE;
    int stage = 0, fill = LAST;
    wait(0);
    if (DOUBLE_BUFFER) read(0, 0);
    for (int k_step = 0; k_step < k_steps; ++k_step) {
        const int next = stage == LAST ? 0 : stage + SIZE;
        #pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const bool is_last = i == STEPS - 1;
            if (!DOUBLE_BUFFER) read(stage, i);
            else if (!is_last) read(stage, i + 1);
            else {
                // After the last k-step this reads the stage once more; the
                // fragments are not used.
                if (k_step + 1 < k_steps) {
                    wait(next);
                    stage = next;
                }
                read(stage, 0);
            }
            if (i == 0) {
                copy(fill, k_step + STAGES - 1);
                fill = fill == LAST ? 0 : fill + SIZE;
            }
            add(i);
        }
        if (!DOUBLE_BUFFER && k_step + 1 < k_steps) {
            wait(next);
            stage = next;
        }
    }
}

// Copies the tiles at rows ``top`` of A and columns ``left`` of B, for k from ``begin`` to ``end``,
// through ``shared`` (STAGES times STAGE elements), while ``go`` runs the mainloop. If BLOCK_K does
// not divide k, the first k-step is the short one, so that the others need no checks.
template <typename CopierA, typename CopierB, typename Go>
__device__ inline void copy_k_steps(real* shared, const Lines& a, const Lines& b, unsigned top,
                                   unsigned left, unsigned begin, unsigned end, const Go& go) {
    if (begin >= end || a.count == 0 || b.count == 0) return;  // no line may be read
    constexpr int SIZE = STAGE<CopierA, CopierB>;
    const int k_steps = (end - begin - 1) / BLOCK_K + 1;
    CopierA copier_a(a, top, begin);
    CopierB copier_b(b, left, begin);
    auto copy = [&](int stage, int k_step) {
        if (k_step < k_steps) {
            copier_a.template copy<true>(shared + stage);
            copier_b.template copy<true>(shared + stage + CopierA::SIZE);
        }
        cp_async_commit_group();
    };
    const unsigned first = end - begin - (k_steps - 1) * BLOCK_K;
    copier_a.template copy<false>(shared, first);
    copier_b.template copy<false>(shared + CopierA::SIZE, first);
    cp_async_commit_group();
    #pragma unroll
    for (int i = 1; i < STAGES - 1; ++i) copy(i * SIZE, i);
    auto wait = [](int stage) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
    };
    go(k_steps, copy, wait);
}
