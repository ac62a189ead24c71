// A block's tile of A B in registers, without tensor cores: a fused multiply-add a lane at a time.
//
// Tiles of A and of B lie in shared memory, k by lines, copied there STAGES - 1 phases ahead
// (cp.async). Each warp has a tile of its own, and its lanes' pieces of 16 bytes lie side by side.
//
// Macros: real, the elements' type; BLOCK_M, BLOCK_N, BLOCK_K; THREAD_M, THREAD_N, what a thread
// computes, and LANES_M of a warp's 32 lanes that lie down its rows; STAGES; AHEAD, 1 to read what
// a step needs a step before; and how a thread goes through its elements: in rectangles of ORDER_M
// by ORDER_N, BY_ROWS or by columns, the rectangles INNER_BY_ROWS or by columns themselves.
#include "elements.cuh"

constexpr int LANES_N = 32 / LANES_M, WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int PIECE = 16 / sizeof(real);    // elements
constexpr int K_LANES = 32 / sizeof(real);  // neighbours along k: a sector
constexpr int PADDING = 4;  // elements: lanes that copy along k, K_LANES of each line, use all banks
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0 && BLOCK_K % K_LANES == 0);
static_assert(THREAD_M % PIECE == 0 && THREAD_N % PIECE == 0);
static_assert(THREAD_M % ORDER_M == 0 && THREAD_N % ORDER_N == 0);

struct __align__(16) Piece { real x[PIECE]; };

// A as rows, or B as columns: lines of k elements. Their elements are neighbours, or else each
// element and that of the next line; ``pitch`` is the distance of the other step.
struct Lines {
    const real* pointer;
    long long pitch;
    unsigned count;
};

// Begins to copy BYTES bytes to shared memory, or where not ``inside`` zeros.
template <int BYTES> __device__ inline void copy_async(real* to, const real* from, bool inside = true) {
    const unsigned at = __cvta_generic_to_shared(to);
    // PTX ISA 9.7.9.25.3.1, "cp.async".
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(at), "l"(from), "r"(inside ? 16 : 0) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :: "r"(at), "l"(from), "n"(BYTES), "r"(inside ? BYTES : 0) : "memory");
}

// Copies one tile of COUNT lines after another. Past the last line it is copied again; what comes
// of that is not stored. WIDTH elements at a time: more than 1 asks for pieces of 16 bytes that
// are aligned, and for a number of lines that they divide.
template <int COUNT, bool ALONG_K, int WIDTH> struct Copier;

template <int COUNT, int WIDTH> struct Copier<COUNT, true, WIDTH> {
    static constexpr int PITCH = COUNT + PADDING, SIZE = PITCH * BLOCK_K;
    static constexpr int AT_ONCE = THREADS / K_LANES, COPIES = COUNT / AT_ONCE;
    static_assert(COUNT % AT_ONCE == 0 && WIDTH == 1);
    const real* from[COPIES];
    unsigned to, k;

    __device__ Copier(const Lines& x, unsigned first, unsigned begin) {
        k = threadIdx.x % K_LANES;
        const unsigned line = threadIdx.x / K_LANES;
        to = k * PITCH + line;
        #pragma unroll
        for (int i = 0; i < COPIES; ++i)
            from[i] = x.pointer + min(first + line + i * AT_ONCE, x.count - 1) * x.pitch + begin + k;
    }
    // The next ``steps`` of k, and zeros for what is left of BLOCK_K; ALL if nothing is.
    template <bool ALL> __device__ void copy(real* tile, unsigned steps = BLOCK_K) {
        #pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            #pragma unroll
            for (int j = 0; j < BLOCK_K; j += K_LANES)
                copy_async<sizeof(real)>(tile + to + j * PITCH + i * AT_ONCE, from[i] + j,
                                         ALL || j + k < steps);
            from[i] += steps;
        }
    }
};

template <int COUNT, int WIDTH> struct Copier<COUNT, false, WIDTH> {
    static constexpr int PITCH = COUNT, SIZE = PITCH * BLOCK_K;
    static constexpr int ACROSS = COUNT / WIDTH < THREADS ? COUNT / WIDTH : THREADS;
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
                + min(first + line + i * ACROSS * WIDTH, x.count - WIDTH);
    }
    template <bool ALL> __device__ void copy(real* tile, unsigned steps = BLOCK_K) {
        #pragma unroll
        for (int i = 0; i < WIDE; ++i) {
            #pragma unroll
            for (int j = 0; j < COPIES; ++j)
                if (DOWN <= BLOCK_K || k < BLOCK_K)
                    copy_async<WIDTH * sizeof(real)>(tile + to + j * DOWN * PITCH + i * ACROSS * WIDTH,
                                                     from[i] + j * DOWN * pitch,
                                                     ALL || k + j * DOWN < steps);
            from[i] += steps * pitch;
        }
    }
};

// Where in the block's tile a thread's first piece is. Lanes 0 and 1 share what they read of B, 0
// and 2 what they read of A: then the hardware serves twice as many lanes at once.
__device__ inline unsigned row_in_block() {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    return warp % WARPS_M * WARP_M + (lane % 2 + lane / 4 % (LANES_M / 2) * 2) * PIECE;
}
__device__ inline unsigned column_in_block() {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    return warp / WARPS_M * WARP_N + (lane / 2 % 2 + lane / 4 / (LANES_M / 2) * 2) * PIECE;
}

// A thread's pieces of a line of a tile, LANES pieces from one to the next.
template <int COUNT, int LANES> __device__ inline void read(real (&x)[COUNT], const real* line) {
    #pragma unroll
    for (int i = 0; i < COUNT / PIECE; ++i)
        *(Piece*)&x[i * PIECE] = *(const Piece*)(line + i * LANES * PIECE);
}

// Neighbours share a factor, which then comes from the register file's cache: a multiply-add that
// takes three registers from the file itself takes longer.
__device__ inline void multiply_add(real (&sum)[THREAD_M][THREAD_N], const real (&x)[THREAD_M],
                                    const real (&y)[THREAD_N]) {
    constexpr int DOWN = THREAD_M / ORDER_M, ACROSS = THREAD_N / ORDER_N;
    #pragma unroll
    for (int i = 0; i < DOWN * ACROSS; ++i) {
        // There and back again, rectangle by rectangle, and within each.
        const int slow = BY_ROWS ? i / ACROSS : i / DOWN, fast = BY_ROWS ? i % ACROSS : i % DOWN;
        const int turned = slow % 2 ? (BY_ROWS ? ACROSS : DOWN) - 1 - fast : fast;
        const int top = (BY_ROWS ? slow : turned) * ORDER_M, left = (BY_ROWS ? turned : slow) * ORDER_N;
        #pragma unroll
        for (int j = 0; j < ORDER_M * ORDER_N; ++j) {
            constexpr int LENGTH = INNER_BY_ROWS ? ORDER_N : ORDER_M;
            const int s = j / LENGTH, f = (s + i) % 2 ? LENGTH - 1 - j % LENGTH : j % LENGTH;
            const int u = top + (INNER_BY_ROWS ? s : f), v = left + (INNER_BY_ROWS ? f : s);
            sum[u][v] += x[u] * y[v];
        }
    }
}

template <typename CopierA, typename CopierB> constexpr int STAGE = CopierA::SIZE + CopierB::SIZE;

// Adds to ``sum`` the block's tile of A B, at (top, left), of the elements from ``begin`` to ``end``
// of k. ``shared`` has STAGES times STAGE elements. Where they do not divide into BLOCK_K, the first
// phase is the short one: the others need no more checks.
template <typename CopierA, typename CopierB>
__device__ inline void multiply(real (&sum)[THREAD_M][THREAD_N], real* shared, const Lines& a,
                                const Lines& b, unsigned top, unsigned left, unsigned begin,
                                unsigned end) {
    if (begin >= end || a.count == 0 || b.count == 0) return;  // nothing may be read
    constexpr int SIZE = STAGE<CopierA, CopierB>, LAST = (STAGES - 1) * SIZE;
    const int phases = (end - begin - 1) / BLOCK_K + 1;
    CopierA copier_a(a, top, begin);
    CopierB copier_b(b, left, begin);
    auto copy = [&](int stage) {
        copier_a.template copy<true>(shared + stage);
        copier_b.template copy<true>(shared + stage + CopierA::SIZE);
    };
    const unsigned first = end - begin - (phases - 1) * BLOCK_K;
    copier_a.template copy<false>(shared, first);
    copier_b.template copy<false>(shared + CopierA::SIZE, first);
    asm volatile("cp.async.commit_group;" ::: "memory");
    #pragma unroll
    for (int i = 1; i < STAGES - 1; ++i) {
        if (i < phases) copy(i * SIZE);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    auto wait = [] {  // for the next phase's tiles, and until everybody has used the ones before
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
        __syncthreads();
    };
    const real* of_a = shared + row_in_block();
    const real* of_b = shared + CopierA::SIZE + column_in_block();
    real x[2][THREAD_M], y[2][THREAD_N];
    auto read_step = [&](int stage, int i, int to) {
        read<THREAD_M, LANES_M>(x[to], of_a + stage + i * CopierA::PITCH);
        read<THREAD_N, LANES_N>(y[to], of_b + stage + i * CopierB::PITCH);
    };
    int stage = 0, ahead = LAST;
    wait();
    if (AHEAD) read_step(0, 0, 0);
    for (int phase = 0; phase < phases; ++phase) {
        #pragma unroll
        for (int i = 0; i < BLOCK_K; ++i) {
            const bool is_last = i == BLOCK_K - 1;
            if (!AHEAD) read_step(stage, i, i % 2);
            else if (!is_last) read_step(stage, i + 1, (i + 1) % 2);
            else {
                wait();
                // Behind the last phase it is read again, and not used.
                if (phase + 1 < phases) stage = stage == LAST ? 0 : stage + SIZE;
                read_step(stage, 0, 0);
            }
            if (i == 0) {
                if (phase + STAGES - 1 < phases) copy(ahead);
                asm volatile("cp.async.commit_group;" ::: "memory");
                ahead = ahead == LAST ? 0 : ahead + SIZE;
            }
            multiply_add(sum, x[i % 2], y[i % 2]);
        }
        if (!AHEAD) {
            wait();
            stage = stage == LAST ? 0 : stage + SIZE;
        }
    }
}

// D = alpha sum + beta C of the block's tile at (top, left) of m x n elements. By pieces of 16 bytes
// where D has them.
__device__ inline void store(const real (&sum)[THREAD_M][THREAD_N], real alpha, real beta,
                             const Elements<const real>& c, const Elements<real>& d, unsigned top,
                             unsigned left, unsigned m, unsigned n) {
    const bool by_pieces = d.column_stride == 1 && d.row_stride % PIECE == 0 && (size_t)d.pointer % 16 == 0;
    #pragma unroll
    for (int u = 0; u < THREAD_M; ++u) {
        const unsigned row = top + row_in_block() + u / PIECE * LANES_M * PIECE + u % PIECE;
        if (row >= m) continue;
        #pragma unroll
        for (int v = 0; v < THREAD_N; v += PIECE) {
            const unsigned column = left + column_in_block() + v * LANES_N;
            Piece found;
            #pragma unroll
            for (int i = 0; i < PIECE; ++i) {
                found.x[i] = alpha * sum[u][v + i];
                if (beta != 0 && column + i < n) found.x[i] += beta * *c.at(row, column + i);
            }
            if (by_pieces && column + PIECE <= n) *(Piece*)d.at(row, column) = found;
            else
                #pragma unroll
                for (int i = 0; i < PIECE; ++i)
                    if (column + i < n) *d.at(row, column + i) = found.x[i];
        }
    }
}

// The tile that a block computes: down ``rows`` of tiles, then across, so that those that run at
// once share in L2 what they read of A and of B.
__device__ inline uint2 tile_of(unsigned block, unsigned down, unsigned across, unsigned rows) {
    const unsigned first = block / (rows * across) * rows, here = min(rows, down - first);
    const unsigned rest = block % (rows * across);
    return make_uint2(first + rest % here, rest / here);
}
