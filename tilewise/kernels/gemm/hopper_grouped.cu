// Grouped products on Hopper's tensor cores (wgmma): 16-bit inputs, float accumulators, and one dimension
// of A and B in groups, each of which is a product of its own. Where the groups end is read on the
// device; the launch depends on the number of groups alone.
//
// With GROUPED = OF_M, the rows of A and D are in groups, and each group has a matrix B of its own: the
// forward pass of a mixture of experts. OF_N is the same with A and B swapped, for groups of few rows. With
// OF_K, k is in groups, and each has a matrix D of its own: the gradient of the weights.
//
// Warp-specialised and persistent, as hopper.cu is: clusters of CLUSTER_M x CLUSTER_N blocks take the
// tiles of all groups in turn; a producer warp loads tiles of A and B by TMA into a ring of STAGES pipeline
// stages, and CONSUMERS warpgroups multiply, each its rows of a tile, or with PING_PONG whole tiles in
// turn. A tile's rows may reach into the next group: they are loaded and multiplied, and not stored.
// With OF_K, the last k-step of a group may reach into the next group: both tiles are set to zero from there
// up to where they are multiplied, so that a NaN of that group does not spread.
//
// Macros: those of hopper_config.cuh, without SPLIT, STREAM_K and unaligned operands; GROUPED; those of
// groups.cuh; STORE_PIECES, 1 where D's lines are 16-byte aligned; OUT_BUFFERS, the buffers of each warp for D, 1
// without TMA_OUT; TURNING, 1 where clusters of two blocks take two tiles below each other or beside each other.

#define OF_M 0
#define OF_N 1
#define OF_K 2
#ifndef GROUPED
#define GROUPED OF_M
#endif
#ifndef STORE_PIECES
#define STORE_PIECES 1
#endif
#ifndef TURNING
#define TURNING 0
#endif
#ifndef OUT_BUFFERS
#define OUT_BUFFERS 1
#endif
#define READ_C 0

#include "../ptx/named_barrier.cuh"
#include "groups.cuh"
#include "hopper_config.cuh"
#include "hopper_finish.cuh"
#include "hopper_load.cuh"
#include "hopper_pieces.cuh"
#include "hopper_tile.cuh"

static_assert(GROUPED == OF_M ? A_K_MAJOR : GROUPED == OF_N ? B_K_MAJOR : !A_K_MAJOR && !B_K_MAJOR,
              "groups begin anywhere, and a TMA box at a multiple of 16 bytes of a line");
static_assert(SPLIT == 1 && !STREAM_K && !HAS_UNALIGNED, "k is not divided, and TMA loads both operands");
static_assert(!TURNING || GROUPED == OF_M && CLUSTER_M == 2 && CLUSTER_N == 1, "two blocks, which share A or B");
static_assert(!TMA_OUT || STORE_PIECES && GROUPED != OF_N, "TMA stores 16 rows of 16-byte aligned lines");
constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : CONSUMERS == 2 ? 232 : 240;
constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : CONSUMERS == 2 ? 40 : 56;
// Unrolling of the consumers' mainloop. With small tiles, the instructions around wgmma take much of the time.
constexpr int K_STEPS_UNROLLED = GROUPED != OF_K && ROWS * BLOCK_N <= 64 * 128 ? 4 : 1;

// The tensor map of D, as a parameter.
#if TMA_OUT
#define D_MAP_PARAMETER const __grid_constant__ TensorMap d_map,
#else
#define D_MAP_PARAMETER
#endif

// Sizes that all groups share, in clusters' tiles, or with TURNING in blocks' tiles; 0 for the dimension that is
// in groups.
struct Across {
    int m, n;
    __device__ int rows(int length) const {
        constexpr int EACH = BLOCK_M * (TURNING ? 1 : CLUSTER_M);
        return GROUPED == OF_M ? (length + EACH - 1) / EACH : m;
    }
    __device__ int columns(int length) const {
        return GROUPED == OF_N ? (length + BLOCK_N * CLUSTER_N - 1) / (BLOCK_N * CLUSTER_N) : n;
    }
    // The number of clusters' tiles of a group.
    __device__ int tiles(int length) const {
        int down = rows(length), across = columns(length);
        return TURNING ? down / 2 * across + down % 2 * ((across + 1) / 2) : down * across;
    }
};

// The coordinates, in blocks' tiles, of tile number ``index`` of a cluster of two that turns; ``rank`` is the
// block's. The cluster takes two tiles below each other, which share B. If the number of rows of tiles is odd, it
// takes the tiles of the last row two by two, and these share A. Pairs of rows go by groups of GROUP_M, as in
// Tile; the last row goes with the last of these groups, so that both share B in L2.
struct TurningTile {
    int row, column;
    bool shares_b;
    __device__ TurningTile(int index, int rows, int columns, int rank) {
        const int whole = rows / 2 / GROUP_M * GROUP_M;  // pairs of rows in groups of GROUP_M
        if (index < whole * columns) {
            int group = index / (GROUP_M * columns);
            index -= group * GROUP_M * columns;
            shares_b = true;
            row = 2 * (group * GROUP_M + index % GROUP_M) + rank;
            column = index / GROUP_M;
            return;
        }
        index -= whole * columns;
        const int pairs = rows / 2 - whole, of_two = 2 * pairs + rows % 2;  // tiles of two columns
        const int first = min(index / of_two, columns / 2);
        index -= first * of_two;
        column = 2 * first;
        shares_b = index < (column + 1 < columns ? 2 : 1) * pairs;
        if (shares_b) {
            if (index >= pairs) index -= pairs, ++column;
            row = 2 * (whole + index) + rank;
        } else {
            row = rows - 1;
            column += rank;
        }
    }
};

// The tiles of one cluster, one after another.
struct Schedule {
    const Groups& groups;
    const Across across;
    const int count, k;
    int next;
    // The present tile: its group, the coordinates of its first element, the k-steps, which begin at
    // ``first_k``, and where the group ends.
    int group, row, column, first_k, k_steps, end;
    bool shares_b;  // with TURNING, whether the cluster's two tiles share B; otherwise they share A

    __device__ Schedule(const Groups& groups, Across across, int count, int k)
        : groups(groups), across(across), count(count), k(k), next(blockIdx.x / CLUSTER) {}

    // Moves on to the next tile; false where there is none. Called by all lanes of a warp. ``below`` and
    // ``beside`` are the block's coordinates in its cluster, along M and along N.
    __device__ bool advance(int below, int beside) {
        group = groups.find(next, count);
        if (group < 0) return false;
        int begin = groups.begin(group);
        end = groups.ends[group];
        const int index = next - groups.starts[group];
        const int rows = across.rows(end - begin), columns = across.columns(end - begin);
        if (TURNING) {
            TurningTile tile(index, rows, columns, below);
            row = tile.row * BLOCK_M + begin;
            column = tile.column * BLOCK_N;
            shares_b = tile.shares_b;
        } else {
            Tile tile(index, rows, columns);
            row = (tile.row * CLUSTER_M + below) * BLOCK_M + (GROUPED == OF_M ? begin : 0);
            column = (tile.column * CLUSTER_N + beside) * BLOCK_N + (GROUPED == OF_N ? begin : 0);
        }
        first_k = GROUPED == OF_K ? begin : 0;
        k_steps = ((GROUPED == OF_K ? end - begin : k) + BLOCK_K - 1) / BLOCK_K;
        next += gridDim.x / CLUSTER;
        return true;
    }
};

// Loads both halves of a tile to this block alone, by boxes that are half as large as the tile.
template <bool K_MAJOR, int COLUMNS = 64>
__device__ inline void load_halves(u32 to, const MappedOperand& from, int extent, int first, int k, int matrix,
                                   u32 barrier) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        each_box<K_MAJOR, 2, COLUMNS>(extent, first, k, half, [&](int at, int x, int y) {
            tma_load<false>(to + at, from.map, x, y, matrix, barrier, 0);
        });
    }
}

// Comes between the wait for wgmma and the first read of its accumulators.
__device__ inline void accumulator_fence(Sums& sum) {
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int j = 0; j < BLOCK_N / 2; ++j) wgmma_accumulator_fence(sum[i][j]);
    }
}

// Sets an MN-major tile of EXTENT columns, in TMA boxes of COLUMNS, to zero from ``valid`` of its BLOCK_K
// of k up to ``end``. A box has a row of 2 * COLUMNS bytes for each k.
template <int EXTENT, int COLUMNS> __device__ inline void clear_tail(u32 tile, int valid, int end, int thread) {
    constexpr int PIECES = 2 * COLUMNS / 16;  // of a row
    int of_box = (end - valid) * PIECES;
    for (int i = thread; i < EXTENT / COLUMNS * of_box; i += 128 * SHARERS) {
        int box = i / of_box, piece = i % of_box;
        st_shared(tile + (box * BLOCK_K + valid) * 2 * COLUMNS + 16 * piece, uint4{0, 0, 0, 0});
    }
}

// ``m_clusters`` and ``n_clusters`` are Across's m and n. A cluster may have tiles that begin past the end of
// their group; they are not stored.
extern "C" __global__ void __launch_bounds__(THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)
hopper_grouped(const __grid_constant__ MappedOperand a, const __grid_constant__ MappedOperand b,
               D_MAP_PARAMETER const __grid_constant__ Out out, const OFFSET* offsets, int groups, int k, int m_clusters,
               int n_clusters FUSED_PARAMETER)
{
    extern __shared__ __align__(1024) char stages[];
    __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
    __shared__ __align__(8) u64 may_multiply[2];  // with PING_PONG: a consumer may start its next mainloop
    __shared__ Groups of_groups;

    // The shuffle tells ptxas that the number is uniform in the warp.
    int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    u32 ring = shared_address(stages);
    u32 full_at = shared_address(full), empty_at = shared_address(empty);
    u32 buffers = ring + STAGES * STAGE_BYTES;  // of the epilogue, one for each consumer warp
    u32 rank = CLUSTER > 1 ? cluster_rank() : 0;
    u32 below = rank % CLUSTER_M, beside = rank / CLUSTER_M;  // its place in the cluster: along M, along N
    const Across across{m_clusters, n_clusters};

    // Initialise the barriers, and read the offsets, which a kernel ahead in the stream may have written.
    if (threadIdx.x == 0) {
        prefetch(a);
        prefetch(b);
#if TMA_OUT
        prefetch_tensor_map(d_map);
#endif
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(full_at + 8 * i, 1);
            mbarrier_init(empty_at + 8 * i, SHARERS * MULTICAST_PEERS);
        }
        for (int i = 0; PING_PONG && i < 2; ++i) mbarrier_init(shared_address(&may_multiply[i]), 1);
        mbarrier_init_fence();
    }
    griddepcontrol_wait();
    of_groups.read(offsets, groups, GROUPED == OF_M ? out.m : GROUPED == OF_N ? out.n : k,
                   [&](int length) { return across.tiles(length); });
    if (CLUSTER > 1) cluster_sync();
    griddepcontrol_launch_dependents();
    Schedule work(of_groups, across, groups, k);

    int stage = 0;
    u32 parity = 0;
    if (warpgroup == 0) {
        // Producer: one warp finds the tiles, and its first thread loads them.
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (threadIdx.x >= 32) return;
        constexpr unsigned short COLUMN = (1 << CLUSTER_M) - 1;
        unsigned short with_b = COLUMN << (beside * CLUSTER_M), with_a = 0;
        for (int i = 0; i < CLUSTER_N; ++i) with_a |= 1 << (below + i * CLUSTER_M);
        while (work.advance(below, beside)) {
            if (threadIdx.x == 0) {
                const int of_a = matrix_of(a, GROUPED == OF_N ? work.group : 0);
                const int of_b = matrix_of(b, GROUPED == OF_M ? work.group : 0);
                // One loop for each kind of multicast: for a branch inside one loop ptxas 13.0 makes wrong
                // machine code, with wrong coordinates of the TMA copies.
                auto fill = [&](auto load) {
#pragma unroll 1
                    for (int k_step = 0; k_step < work.k_steps; ++k_step) {
                        mbarrier_wait(empty_at + 8 * stage, parity ^ 1);
                        mbarrier_arrive_expect_tx(full_at + 8 * stage, STAGE_BYTES);
                        load(ring + stage * STAGE_BYTES, work.first_k + k_step * BLOCK_K, full_at + 8 * stage);
                        if (++stage == STAGES) stage = 0, parity ^= 1;
                    }
                };
                if (!TURNING) {
                    fill([&](u32 to, int p, u32 barrier) {
                        load_tile<A_K_MAJOR, CLUSTER_N>(to, a, BLOCK_M, work.row, p, of_a, beside, barrier, with_a);
                        load_tile<B_K_MAJOR, CLUSTER_M, B_BOX_COLUMNS>(to + A_BYTES, b, BLOCK_N, work.column, p,
                                                                       of_b, below, barrier, with_b);
                    });
                } else if (work.shares_b) {
                    fill([&](u32 to, int p, u32 barrier) {
                        load_halves<A_K_MAJOR>(to, a, BLOCK_M, work.row, p, of_a, barrier);
                        load_tile<B_K_MAJOR, 2, B_BOX_COLUMNS>(to + A_BYTES, b, BLOCK_N, work.column, p, of_b,
                                                               rank, barrier, 3);
                    });
                } else {
                    fill([&](u32 to, int p, u32 barrier) {
                        load_tile<A_K_MAJOR, 2>(to, a, BLOCK_M, work.row, p, of_a, rank, barrier, 3);
                        load_halves<B_K_MAJOR, B_BOX_COLUMNS>(to + A_BYTES, b, BLOCK_N, work.column, p, of_b,
                                                              barrier);
                    });
                }
            }
            __syncwarp();
        }
        // No block may end while another of the cluster still writes to its shared memory or signals
        // its barriers.
        for (int i = 0; TILES > 1 && i < STAGES && threadIdx.x == 0; ++i) {
            mbarrier_wait(empty_at + 8 * stage, parity ^ 1);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    } else {
        // Consumers.
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        int consumer = warpgroup - 1, thread = threadIdx.x % 128;
        int mine = PING_PONG ? 0 : consumer;  // its place among those that share a tile
        int lane = thread % 32, warp = thread / 32;
        // Consumer release: one thread arrives for each multicast peer, at the barrier ``empty`` of the
        // block that loads into this block's stage.
        int other = thread - CLUSTER_M;
        u32 peer = other < 0 ? beside * CLUSTER_M + thread
                             : below + (other + (other >= (int)beside)) * CLUSTER_M;
        u32 empty_there = TILES > 1 ? map_shared(empty_at, peer) : empty_at;
        auto release = [&](int stage) {
            if (thread < MULTICAST_PEERS) mbarrier_arrive<(TILES > 1)>(empty_there + 8 * stage);
        };
        // Keeps the four warps of a consumer together where no wgmma does. If a warp fell behind, the mbarrier
        // could complete twice more, and its parity would no longer tell the warp to go on.
        auto keep_together = [&] { named_barrier_sync<128>(1 + CONSUMERS + consumer); };
        const u32 own = buffers + (consumer * 4 + warp) * OUT_BUFFERS * OUT_BYTES;
        [[maybe_unused]] u32 next_buffer = 0;
        Sums sum;
        for (int taken = 0; work.advance(below, beside); ++taken) {
            if (PING_PONG && taken % 2 != consumer) {
                // The other consumer multiplies this tile: go past its stages.
                int stages_on = stage + work.k_steps;
                parity ^= stages_on / STAGES % 2;
                stage = stages_on % STAGES;
                continue;
            }
            if (PING_PONG) {
                // The mainloops run in the order of the tiles. Otherwise a consumer that waits for a
                // stage one pass through the ring too early would see the parity of an older
                // fill, and take the stage for full.
                int others = taken / 2 + consumer;  // mainloops of the other consumer to wait for
                mbarrier_wait(shared_address(&may_multiply[consumer]), others % 2 ^ 1);
            }
            Out of_tile = of_batch(out, GROUPED == OF_K ? work.group : 0);
            if (GROUPED == OF_M) of_tile.m = work.end;
            if (GROUPED == OF_N) of_tile.n = work.end;
            int row = work.row + mine * ROWS;
            if (GROUPED != OF_K && (row >= of_tile.m || work.column >= of_tile.n)) {
                // Nothing of it is stored: the other consumer has the tensor cores for itself.
                for (int k_step = 0; k_step < work.k_steps; ++k_step) {
                    mbarrier_wait(full_at + 8 * stage, parity);
                    keep_together();
                    release(stage);
                    if (++stage == STAGES) stage = 0, parity ^= 1;
                }
                if (PING_PONG && thread == 0) {
                    mbarrier_arrive<false>(shared_address(&may_multiply[1 - consumer]));
                }
                continue;
            }
            int previous = -1;
            // Enqueues one wgmma for each 64 rows: ``step`` counts 16 of k, which are 32 bytes of a row (K-major),
            // or 16 rows (MN-major), in units of 16 bytes.
            auto multiply = [&](u32 at, int i, int step, int is_later) {
                // K-major and MN-major alike: swizzled rows in groups of 8.
                u64 of_a = wgmma_descriptor<128>(at + (mine * (ROWS / 64) + i) * BOX_BYTES, BOX_BYTES);
                u64 of_b = wgmma_descriptor<2 * B_BOX_COLUMNS>(at + A_BYTES, 2 * B_BOX_COLUMNS * BLOCK_K);
                wgmma(sum[i], of_a + step * (A_K_MAJOR ? 2 : 128),
                      of_b + step * (B_K_MAJOR ? 2 : 2 * B_BOX_COLUMNS), is_later);
            };
            const int whole = GROUPED == OF_K ? (work.end - work.first_k) / BLOCK_K : work.k_steps;
#pragma unroll K_STEPS_UNROLLED
            for (int k_step = 0; k_step < whole; ++k_step) {
                mbarrier_wait(full_at + 8 * stage, parity);
                u32 at = ring + stage * STAGE_BYTES;
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
                    for (int step = 0; step < BLOCK_K / 16; ++step) multiply(at, i, step, k_step | step);
                }
                wgmma_commit_group();
                wgmma_wait_group<1>();  // the k-step before is done: its stage may be filled again
                if (previous >= 0) release(previous);
                previous = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            if (GROUPED == OF_K && whole < work.k_steps) {
                // The last k-step ends in its midst: it is multiplied up to the next multiple of 16.
                mbarrier_wait(full_at + 8 * stage, parity);
                u32 at = ring + stage * STAGE_BYTES;
                int valid = work.end - work.first_k - whole * BLOCK_K, steps = (valid + 15) / 16;
                clear_tail<BLOCK_M, 64>(at, valid, 16 * steps, mine * 128 + thread);
                clear_tail<BLOCK_N, B_BOX_COLUMNS>(at + A_BYTES, valid, 16 * steps, mine * 128 + thread);
                fence_proxy_async();
                named_barrier_sync<128 * SHARERS>(1 + (PING_PONG ? consumer : 0));
                // ptxas serializes all wgmmas of the kernel if two of this loop may be in flight.
                wgmma_wait_group<0>();
#pragma unroll 1
                for (int step = 0; step < steps; ++step) {
                    wgmma_fence();
#pragma unroll
                    for (int i = 0; i < ROWS / 64; ++i) multiply(at, i, step, whole | step);
                    wgmma_commit_group();
                    wgmma_wait_group<0>();
                }
                if (previous >= 0) release(previous);
                previous = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            if (GROUPED == OF_K && previous < 0) keep_together();
            // One thread may arrive for its warpgroup: wgmma keeps the four warps together.
            if (PING_PONG && thread == 0) {
                mbarrier_arrive<false>(shared_address(&may_multiply[1 - consumer]));
            }
            wgmma_wait_group<0>();
            accumulator_fence(sum);
            if (previous >= 0) release(previous);
            if (GROUPED == OF_K && previous < 0) {  // an empty group
#pragma unroll
                for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
                    for (int j = 0; j < BLOCK_N / 2; ++j) sum[i][j] = 0;
                }
            }
            int own_row = row + warp * 16 + lane / 4, own_column = work.column + 2 * (lane % 4);
#ifdef EPILOGUE
            finish(sum, own_row, own_column, of_tile, work.group, FUSED);
#endif
#if TMA_OUT
            store_by_tma(sum, own, lane, d_map, row + warp * 16, work.column, GROUPED == OF_K ? work.group : 0,
                         of_tile, next_buffer);
#else
            if constexpr (STORE_PIECES) {
                store_pieces(sum, own, lane, row + warp * 16, work.column, of_tile);
            } else {
                store_tile(sum, own_row, own_column, of_tile);
            }
#endif
        }
        if (TMA_OUT && lane == 0) tma_store_wait_group_read<0>();
    }
}
