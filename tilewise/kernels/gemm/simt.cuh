// A block's tile of A B in registers, by one fused multiply-add per lane and instruction.
//
// Tiles of A and B are MN-major in shared memory (pipeline.cuh). Each warp computes a tile of its
// own; the 16-byte pieces of its lanes are neighbours.
//
// Macros: real, BLOCK_K, STAGES and DOUBLE_BUFFER of pipeline.cuh; BLOCK_M, BLOCK_N; THREAD_M,
// THREAD_N, a thread's tile; LANES_M, how many of a warp's 32 lanes lie along M; the order of a
// thread's multiply-adds: rectangles of ORDER_M x ORDER_N, row by row of rectangles (BY_ROWS) or
// column by column, and within each likewise (INNER_BY_ROWS); SLICES, groups of warps that divide
// each k-step and add up their sums at the end.
#include "epilogue.cuh"
#include "matrix.cuh"
#include "tile_order.cuh"

#ifndef SLICES
#define SLICES 1
#endif

constexpr int LANES_N = 32 / LANES_M, WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr int SLICE = 32 * WARPS_M * WARPS_N, THREADS = SLICES * SLICE;  // threads
constexpr int SLICE_K = BLOCK_K / SLICES;

#include "pipeline.cuh"

static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0 && BLOCK_K % K_LANES == 0);
static_assert(BLOCK_K % SLICES == 0);
static_assert(THREAD_M % PIECE == 0 && THREAD_N % PIECE == 0);
static_assert(THREAD_M % ORDER_M == 0 && THREAD_N % ORDER_N == 0);

// The line in its warp's tile of a thread's ``i``th line: NEIGHBOURS lines are adjacent, and then
// come those of the other LANES lanes.
template <int NEIGHBOURS, int LANES> __device__ constexpr int line_of(int lane, int i) {
    return (i / NEIGHBOURS * LANES + lane) * NEIGHBOURS + i % NEIGHBOURS;
}

// An MN-major tile in shared memory. A thread reads 16-byte pieces, each of NEIGHBOURS lines at
// K_STEPS steps of k. ``first(line)`` is the offset of its first piece, ``next(step, i)`` the
// offset from there of the piece with its ``i``th line at step ``step``.
template <int PITCH, int LANES> struct MnMajorTile {
    static constexpr int NEIGHBOURS = PIECE, K_STEPS = 1;
    static __device__ unsigned first(unsigned line) { return line; }
    static __device__ constexpr int next(int step, int i) {
        return step * PITCH + line_of<PIECE, LANES>(0, i);
    }
};

// The same with the copies that fill it.
template <int COUNT, bool K_MAJOR, int WIDTH, int LANES>
struct CopiedTile : Copier<COUNT, K_MAJOR, WIDTH>, MnMajorTile<Copier<COUNT, K_MAJOR, WIDTH>::PITCH, LANES> {
    using Copier<COUNT, K_MAJOR, WIDTH>::Copier;
};

// A lane's coordinates in its warp, along M and along N. Lanes 0 and 1 read the same pieces of B,
// lanes 0 and 2 the same of A, so that the hardware serves twice as many lanes at once.
__device__ inline unsigned lane_down() {
    const unsigned lane = threadIdx.x % 32;
    return lane % 2 + lane / 4 % (LANES_M / 2) * 2;
}
__device__ inline unsigned lane_across() {
    const unsigned lane = threadIdx.x % 32;
    return lane / 2 % 2 + lane / 4 / (LANES_M / 2) * 2;
}

// A thread's first row and column in the block's tile.
template <typename TileA> __device__ inline unsigned row_in_block() {
    return threadIdx.x / 32 % WARPS_M * WARP_M + line_of<TileA::NEIGHBOURS, LANES_M>(lane_down(), 0);
}
template <typename TileB> __device__ inline unsigned column_in_block() {
    const unsigned warp = (SLICES > 1 ? threadIdx.x % SLICE : threadIdx.x) / 32;
    return warp / WARPS_M * WARP_N + line_of<TileB::NEIGHBOURS, LANES_N>(lane_across(), 0);
}

// A fragment: COUNT lines of a tile at K_STEPS steps of k.
template <typename Tile, int COUNT> struct Held {
    Piece pieces[COUNT / Tile::NEIGHBOURS];

    // ``of`` points at the thread's first piece.
    __device__ void read(const real* of, int step) {
        #pragma unroll
        for (int i = 0; i < COUNT; i += Tile::NEIGHBOURS)
            pieces[i / Tile::NEIGHBOURS] = *(const Piece*)(of + Tile::next(step, i));
    }
    __device__ real at(int step, int i) const {
        return pieces[i / Tile::NEIGHBOURS].x[Tile::K_STEPS > 1 ? step % PIECE : i % PIECE];
    }
};

// Consecutive multiply-adds share a factor, which then comes from the operand reuse cache: one that
// reads three registers from the register file takes longer.
template <typename HeldA, typename HeldB>
__device__ inline void multiply_add(real (&sum)[THREAD_M][THREAD_N], const HeldA& x, const HeldB& y,
                                    int step) {
    constexpr int DOWN = THREAD_M / ORDER_M, ACROSS = THREAD_N / ORDER_N;
    #pragma unroll
    for (int i = 0; i < DOWN * ACROSS; ++i) {
        // Boustrophedon: there and back, rectangle by rectangle, and within each.
        const int slow = BY_ROWS ? i / ACROSS : i / DOWN, fast = BY_ROWS ? i % ACROSS : i % DOWN;
        const int turned = slow % 2 ? (BY_ROWS ? ACROSS : DOWN) - 1 - fast : fast;
        const int top = (BY_ROWS ? slow : turned) * ORDER_M, left = (BY_ROWS ? turned : slow) * ORDER_N;
        #pragma unroll
        for (int j = 0; j < ORDER_M * ORDER_N; ++j) {
            constexpr int LENGTH = INNER_BY_ROWS ? ORDER_N : ORDER_M;
            const int s = j / LENGTH, f = (s + i) % 2 ? LENGTH - 1 - j % LENGTH : j % LENGTH;
            const int u = top + (INNER_BY_ROWS ? s : f), v = left + (INNER_BY_ROWS ? f : s);
            sum[u][v] += x.at(step, u) * y.at(step, v);
        }
    }
}

// Adds the products of one k-step after another to ``sum``. B's tile follows A's in a stage.
template <typename TileA, typename TileB, int SIZE, typename Copy, typename Wait>
__device__ inline void add_k_steps(real (&sum)[THREAD_M][THREAD_N], const real* shared, int k_steps,
                                  const Copy& copy, const Wait& wait) {
    const real* of_a = shared + TileA::first(row_in_block<TileA>());
    const real* of_b = shared + TileA::SIZE + TileB::first(column_in_block<TileB>());
    if (SLICES > 1) {
        static_assert(SLICES == 1 || TileA::K_STEPS == 1 && TileB::K_STEPS == 1);
        of_a += TileA::next(threadIdx.x / SLICE * SLICE_K, 0);
        of_b += TileB::next(threadIdx.x / SLICE * SLICE_K, 0);
    }
    // Two fragments of each, for DOUBLE_BUFFER: one is read while the other is used.
    Held<TileA, THREAD_M> x[2];
    Held<TileB, THREAD_N> y[2];
    constexpr int EACH_A = TileA::K_STEPS, EACH_B = TileB::K_STEPS;
    auto read = [&](int stage, int i) {
        if (i % EACH_A == 0) x[i / EACH_A % 2].read(of_a + stage, i);
        if (i % EACH_B == 0) y[i / EACH_B % 2].read(of_b + stage, i);
    };
    auto add = [&](int i) { multiply_add(sum, x[i / EACH_A % 2], y[i / EACH_B % 2], i); };
    mainloop<SLICE_K, SIZE>(k_steps, read, add, copy, wait);
}

// Adds the block's tile of A B at (top, left), for k from ``begin`` to ``end``, to ``sum``.
// ``shared`` has STAGES times STAGE elements.
template <typename TileA, typename TileB>
__device__ inline void multiply(real (&sum)[THREAD_M][THREAD_N], real* shared, const Lines& a,
                                const Lines& b, unsigned top, unsigned left, unsigned begin,
                                unsigned end) {
    auto go = [&](int k_steps, const auto& copy, const auto& wait) {
        add_k_steps<TileA, TileB, STAGE<TileA, TileB>>(sum, shared, k_steps, copy, wait);
    };
    copy_k_steps<TileA, TileB>(shared, a, b, top, left, begin, end, go);
}

// Adds up the sums of the slices, in their order, in the registers of the first slice. ``shared``,
// SIZE elements, is where the tiles were.
template <int SIZE> __device__ inline void add_slices(real (&sum)[THREAD_M][THREAD_N], real* shared) {
    if (SLICES == 1) return;
    constexpr int PIECES = THREAD_M * THREAD_N / PIECE;
    static_assert((SLICES - 1) * PIECES * PIECE * SLICE <= SIZE);
    const unsigned slice = threadIdx.x / SLICE, thread = threadIdx.x % SLICE;
    Piece* sums = (Piece*)shared + thread;
    auto own = [&](int i) -> real* { return &sum[i * PIECE / THREAD_N][i * PIECE % THREAD_N]; };
    __syncthreads();  // all threads have read the tiles
    if (slice > 0)
        #pragma unroll
        for (int i = 0; i < PIECES; ++i) sums[((slice - 1) * PIECES + i) * SLICE] = *(const Piece*)own(i);
    __syncthreads();
    if (slice > 0) return;
    #pragma unroll
    for (int s = 0; s < SLICES - 1; ++s)
        #pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const Piece found = sums[(s * PIECES + i) * SLICE];
            #pragma unroll
            for (int j = 0; j < PIECE; ++j) own(i)[j] += found.x[j];
        }
}

// Whether 16-byte stores to D's rows are aligned.
__device__ inline bool has_aligned_rows(const Matrix<real>& d) {
    return d.column_stride == 1 && d.row_stride % PIECE == 0 && (size_t)d.pointer % 16 == 0;
}

// The epilogue of the block's tile at (top, left) of m x n elements. Stores 16 bytes at a time
// where D's rows are contiguous and 16-byte aligned.
template <typename TileA, typename TileB>
__device__ inline void store(const real (&sum)[THREAD_M][THREAD_N], real alpha, real beta,
                             const Matrix<const real>& c, const Matrix<real>& d, unsigned batch,
                             unsigned top, unsigned left, unsigned m, unsigned n, const Fused& fused) {
    static_assert(TileB::NEIGHBOURS == PIECE);
    const bool by_pieces = has_aligned_rows(d);
    #pragma unroll
    for (int u = 0; u < THREAD_M; ++u) {
        const unsigned row = top + row_in_block<TileA>() + line_of<TileA::NEIGHBOURS, LANES_M>(0, u);
        if (row >= m) continue;
        #pragma unroll
        for (int v = 0; v < THREAD_N; v += PIECE) {
            const unsigned column = left + column_in_block<TileB>() + line_of<PIECE, LANES_N>(0, v);
            Piece found;
            #pragma unroll
            for (int i = 0; i < PIECE; ++i) {
                found.x[i] = epilogue(sum[u][v + i], alpha, beta,
                                      [&] { return *c.at(row, column + i); },
                                      [&] { return column + i < n; });
                if (FUSES && column + i < n) found.x[i] = fused(found.x[i], batch, row, column + i);
            }
            if (by_pieces && column + PIECE <= n) *(Piece*)d.at(row, column) = found;
            else
                #pragma unroll
                for (int i = 0; i < PIECE; ++i)
                    if (column + i < n) *d.at(row, column + i) = found.x[i];
        }
    }
}

// The rows of a thread that the epilogue below takes at a time: as many as ``size`` elements hold.
constexpr int rows_at_once(int size) {
    int rows = THREAD_M;
    while (rows > 1 && (THREAD_M % rows || SLICE * THREAD_N * rows > size)) --rows;
    return rows;
}

// The epilogue where D's rows are not 16-byte aligned: some rows of each thread at a time go through
// ``shared`` (SIZE elements, which no thread reads any more), so that neighbouring lanes store
// neighbouring elements.
template <typename TileA, int SIZE>
__device__ inline void store_by_elements(const real (&sum)[THREAD_M][THREAD_N], real* shared,
                                         real alpha, real beta, const Matrix<const real>& c,
                                         const Matrix<real>& d, unsigned batch, unsigned top,
                                         unsigned left, unsigned m, unsigned n, const Fused& fused) {
    constexpr int ROWS = rows_at_once(SIZE), ROW = 32 * THREAD_N;  // of a warp: one row of each lane
    static_assert(SLICES == 1 && SLICE * THREAD_N <= SIZE);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    real* rows = shared + warp * ROWS * ROW;
    top += warp % WARPS_M * WARP_M;
    left += warp / WARPS_M * WARP_N;
    #pragma unroll
    for (int first = 0; first < THREAD_M; first += ROWS) {
        #pragma unroll
        for (int u = 0; u < ROWS; ++u)
            #pragma unroll
            for (int v = 0; v < THREAD_N; v += PIECE) {
                Piece found;
                #pragma unroll
                for (int i = 0; i < PIECE; ++i) found.x[i] = scaled(sum[first + u][v + i], alpha);
                const int column = line_of<PIECE, LANES_N>(lane_across(), v);
                *(Piece*)(rows + u * ROW + lane_down() * WARP_N + column) = found;
            }
        __syncwarp();
        #pragma unroll 8
        for (int i = 0; i < ROWS * THREAD_N; ++i) {
            const unsigned at = i % THREAD_N * 32 + lane, column = left + at % WARP_N;
            const unsigned u = first + i / THREAD_N;
            const unsigned row = top + line_of<TileA::NEIGHBOURS, LANES_M>(at / WARP_N, u);
            if (row >= m || column >= n) continue;
            real found = rows[i / THREAD_N * ROW + at];
            if (beta != 0) found = plus_c(found, beta, *c.at(row, column));
            *d.at(row, column) = fused(found, batch, row, column);
        }
        __syncwarp();
    }
}
