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

// A barrier among the threads that store: all of the block, or its first slice.
__device__ inline void slice_barrier() {
    if (SLICES == 1) __syncthreads();
    else asm volatile("barrier.sync 1, %0;" :: "n"(SLICE) : "memory");
}

// Whether 16-byte stores to D's rows are aligned.
__device__ inline bool has_aligned_rows(const Matrix<real>& d) {
    return d.row_stride % PIECE == 0 && (size_t)d.pointer % 16 == 0;
}

// Stores the block's tile at (top, left) of m x n elements: alpha A B, to a D with contiguous rows.
// PIECES: the rows are 16-byte aligned, and are stored 16 bytes at a time.
//
// What all elements of a row, or of a column, share is computed once for them: where k is small, the
// epilogue is much of the time.
template <typename TileA, typename TileB, bool PIECES>
__device__ inline void store_rows(const real (&sum)[THREAD_M][THREAD_N], real alpha, const Matrix<real>& d,
                                  unsigned top, unsigned left, unsigned m, unsigned n) {
    static_assert(TileB::NEIGHBOURS == PIECE);
    const unsigned first = top + row_in_block<TileA>(), column = left + column_in_block<TileB>();
    real* row = d.pointer + first * d.row_stride + column;
    #pragma unroll
    for (int u = 0; u < THREAD_M; ++u) {
        const int line = line_of<TileA::NEIGHBOURS, LANES_M>(0, u);
        if (u > 0) row += (line - line_of<TileA::NEIGHBOURS, LANES_M>(0, u - 1)) * d.row_stride;
        if (first + line >= m) continue;
        #pragma unroll
        for (int v = 0; v < THREAD_N; v += PIECE) {
            const int offset = line_of<PIECE, LANES_N>(0, v);
            Piece found;
            #pragma unroll
            for (int i = 0; i < PIECE; ++i) found.x[i] = scaled(sum[u][v + i], alpha);
            if (PIECES && column + offset + PIECE <= n) *(Piece*)(row + offset) = found;
            else
                #pragma unroll
                for (int i = 0; i < PIECE; ++i)
                    if (column + offset + i < n) row[offset + i] = found.x[i];
        }
    }
}

// How many of its rows a thread stages at a time in the epilogues below: as many as fit into ``size``
// elements of shared memory.
constexpr int rows_at_once(int size) {
    int rows = THREAD_M;
    while (rows > 1 && (THREAD_M % rows || SLICE * THREAD_N * rows > size)) --rows;
    return rows;
}

// An epilogue through shared memory, so that neighbouring lanes store neighbouring elements of D.
// Each thread stages ROWS of its rows at a time in ``shared``, which has SIZE elements and is no longer
// read by the mainloop. One row of each of a warp's threads makes LANES_M lines of WARP_N elements.
// ``store_lines(staged, first)`` stores to D what a warp has staged: of each thread, the ROWS rows from
// row ``first`` of its tile on.
constexpr int ROW = 32 * THREAD_N;  // elements of a warp: one row of each lane
template <int ROWS, int SIZE, typename StoreLines>
__device__ inline void store_staged(const real (&sum)[THREAD_M][THREAD_N], real* shared, real alpha,
                                    const StoreLines& store_lines) {
    static_assert(SLICE * THREAD_N <= SIZE);
    real* rows = shared + threadIdx.x / 32 * ROWS * ROW;
    real* own = rows + lane_down() * WARP_N + line_of<PIECE, LANES_N>(lane_across(), 0);
    #pragma unroll
    for (int first = 0; first < THREAD_M; first += ROWS) {
        #pragma unroll
        for (int u = 0; u < ROWS; ++u)
            #pragma unroll
            for (int v = 0; v < THREAD_N; v += PIECE) {
                Piece found;
                #pragma unroll
                for (int i = 0; i < PIECE; ++i) found.x[i] = scaled(sum[first + u][v + i], alpha);
                *(Piece*)(own + u * ROW + line_of<PIECE, LANES_N>(0, v)) = found;
            }
        __syncwarp();
        store_lines(rows, first);
        __syncwarp();
    }
}

// The same as ``store_rows<..., false>``, through shared memory.
template <typename TileA, int SIZE>
__device__ inline void store_unaligned_rows(const real (&sum)[THREAD_M][THREAD_N], real* shared,
                                            real alpha, const Matrix<real>& d, unsigned top,
                                            unsigned left, unsigned m, unsigned n) {
    // A lane has ACROSS columns of every DOWNth line.
    constexpr int ACROSS = WARP_N > 32 ? WARP_N / 32 : 1, DOWN = WARP_N > 32 ? 1 : 32 / WARP_N;
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / WARP_N;
    const unsigned first = top + warp % WARPS_M * WARP_M + line * TileA::NEIGHBOURS;
    const unsigned column = left + warp / WARPS_M * WARP_N + lane % WARP_N;
    real* const to = d.pointer + first * d.row_stride + column;
    constexpr int ROWS = rows_at_once(SIZE);
    store_staged<ROWS, SIZE>(sum, shared, alpha, [&](const real* staged, int u) {
        #pragma unroll 1
        for (int r = 0; r < ROWS; ++r) {
            const int under = line_of<TileA::NEIGHBOURS, LANES_M>(0, u + r);
            real* row = to + under * d.row_stride;
            #pragma unroll
            for (int i = 0; i < LANES_M / DOWN; ++i) {
                if (first + under + i * DOWN * TileA::NEIGHBOURS < m)
                    #pragma unroll
                    for (int j = 0; j < ACROSS; ++j)
                        if (column + 32 * j < n)
                            row[32 * j] = staged[r * ROW + (i * ACROSS + j) * 32 + lane];
                row += DOWN * TileA::NEIGHBOURS * d.row_stride;
            }
        }
    });
}

// The epilogue for any strides of D, with C and with the caller's function, through shared memory.
template <typename TileA, int SIZE>
__device__ inline void store_any(const real (&sum)[THREAD_M][THREAD_N], real* shared, real alpha,
                                 real beta, const Matrix<const real>& c, const Matrix<real>& d,
                                 unsigned batch, unsigned top, unsigned left, unsigned m, unsigned n,
                                 const Fused& fused) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    top += warp % WARPS_M * WARP_M;
    left += warp / WARPS_M * WARP_N;
    constexpr int ROWS = rows_at_once(SIZE);
    store_staged<ROWS, SIZE>(sum, shared, alpha, [&](const real* staged, int first) {
        #pragma unroll 4
        for (int i = lane; i < ROWS * ROW; i += 32) {
            const unsigned column = left + i % WARP_N, u = first + i / ROW;
            const unsigned row = top + line_of<TileA::NEIGHBOURS, LANES_M>(i % ROW / WARP_N, u);
            if (row >= m || column >= n) continue;
            real found = staged[i];
            if (beta != 0) found = plus_c(found, beta, *c.at(row, column));
            *d.at(row, column) = fused(found, batch, row, column);
        }
    });
}
