// D = alpha*A*B + beta*C on Hopper's tensor cores (wgmma): 16-bit inputs, float accumulators.
//
// Warp-specialised and persistent. Clusters of CLUSTER_M x CLUSTER_N blocks take tiles of D in turn.
// In each block, one thread of the producer warpgroup loads tiles of A and B by TMA into a ring of
// STAGES pipeline stages, and CONSUMERS warpgroups multiply, BLOCK_M / CONSUMERS rows of the tile
// each; or, with PING_PONG, two warpgroups take tiles in turn, so that one stores a tile while the
// other multiplies the next. Blocks of a cluster that are neighbours along N use the same tile of A,
// neighbours along M the same tile of B: each loads a part of it and multicasts it. TMA can't read
// operands that are not 16-byte aligned: two more producer warpgroups load them by cp.async and
// realign them (hopper_load.cuh).
//
// Where tiles are too few to fill the GPU, they are divided along k. Split-K: SPLIT blocks, which are a
// cluster, compute one tile, and the first adds up the accumulators of the others through distributed
// shared memory. Stream-K (STREAM_K): several clusters compute each tile of the tail (Schedule), their
// accumulators go to a workspace, and a second kernel adds them up (hopper_sum.cu). Both add in the
// order of k, so results are reproducible.
//
// With PAIRS, D is a function of A B and A U, element by element: a tile's B is columns of B and the same
// columns of U, or neighbouring columns of one matrix that has both in turn.
//
// Macros: those of hopper_config.cuh.

#include "hopper_config.cuh"
#include "hopper_load.cuh"
#include "hopper_schedule.cuh"
#include "hopper_finish.cuh"
#include "hopper_partial.cuh"

typedef Loader<A_K_MAJOR, A_EXTENT, A_UNALIGNED> LoaderA;
typedef Loader<B_K_MAJOR, BLOCK_N, B_UNALIGNED> LoaderB;
constexpr int RAW_BYTES = LoaderA::RAW_BYTES + LoaderB::RAW_BYTES;  // of a stage of the raw ring
// Of the consumers' loop. With small tiles, the instructions around wgmma take much of the time.
constexpr int K_STEPS_UNROLLED = ROWS * BLOCK_N <= 64 * 128 ? 4 : 1;
constexpr int OUT_BUFFERS_BYTES = 4 * CONSUMERS * 2 * OUT_BYTES;

// Register budget (setmaxnreg). With small accumulators, a lean block leaves registers of the
// multiprocessor to blocks of pack and hopper_sum, which then start beside it.
constexpr bool IS_LEAN = !HAS_UNALIGNED && ROWS * BLOCK_N <= 96 * 128 &&
                         (CONSUMERS == 2 || CONSUMERS == 1 && STREAM_K);
constexpr int REGISTERS_FOR = IS_LEAN ? 512 : THREADS;  // threads that share the register file
// Registers of each thread. In all they must be no more than the launch allocates.
constexpr int PRODUCER_REGISTERS = IS_LEAN          ? 24
                                   : CONSUMERS == 1 ? 56
                                   : CONSUMERS == 3 || HAS_UNALIGNED ? 32
                                   : FUSES                           ? 24
                                                                     : 40;
constexpr int LOADER_REGISTERS = CONSUMERS == 1 ? 104 : 72;
constexpr int CONSUMER_REGISTERS = IS_LEAN          ? (CONSUMERS == 1 ? 232 : 176)
                                   : CONSUMERS == 1 ? 240
                                   : CONSUMERS == 3 ? 160
                                   : HAS_UNALIGNED  ? 152
                                   : FUSES          ? 240
                                                    : 232;
static_assert(PRODUCER_REGISTERS + LOADERS * LOADER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <=
              THREADS / 128 * (65536 / REGISTERS_FOR / 8 * 8), "setmaxnreg.inc would wait for ever");

// Comes between the wait for wgmma and the first read of its accumulators.
__device__ inline void accumulator_fence(Sums& sum) {
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int j = 0; j < BLOCK_N / 2; ++j) wgmma_accumulator_fence(sum[i][j]);
    }
}

// Split-K reduction: adds the accumulators of the cluster's other blocks to those of the first block,
// through the ring of the first block, which is no longer in use.
__device__ inline void add_split(Sums& sum, u32 ring, u32 rank, int thread) {
    constexpr int PIECES = ROWS / 64 * (BLOCK_N / 8), STEP = 16 * 128 * CONSUMERS;
    cluster_sync();
    if (rank > 0) {
        u32 to = map_shared(ring, 0) + (rank - 1) * (4 * TILE_FLOATS) + 16 * thread;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) st_shared_cluster(to + p * STEP, &sum[0][0] + 4 * p);
    }
    cluster_sync();
    if (rank > 0) return;
    for (int other = 0; other < SPLIT - 1; ++other) {
        u32 from = ring + other * (4 * TILE_FLOATS) + 16 * thread;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            float4 x = ld_shared_v4_f32(from + p * STEP);
            float* to = &sum[0][0] + 4 * p;
            to[0] += x.x;
            to[1] += x.y;
            to[2] += x.z;
            to[3] += x.w;
        }
    }
}

// ``m_tiles`` and ``n_tiles`` are multiples of CLUSTER_M and CLUSTER_N; tiles past the end of D are
// computed of zeros and not stored. Counted in clusters' tiles, ``data_parallel_tiles`` are computed
// whole, and the tail's ``tail_tiles`` in ``splits`` splits each, by at least tail_tiles * splits
// clusters. With SPLIT, there is a cluster for each tile. The tiles of the first ``prefetched_k_steps``
// k-steps are prefetched to L2 while the kernels ahead in the stream end. Of a tile of a 16-byte
// aligned, K-major A, only the first ``a_rows`` rows are loaded, whole groups of 8 by each block that
// shares it; of an unaligned one the first A_ROWS. Of an MN-major A, all BLOCK_M rows are loaded.
extern "C" __global__ void __launch_bounds__(REGISTERS_FOR, 1) __cluster_dims__(CLUSTER, 1, 1)
hopper(
    const __grid_constant__ Operand<A_UNALIGNED> a, const __grid_constant__ Operand<B_UNALIGNED> b,
    UP_PARAMETER
    STAGED_PARAMETER
    const __grid_constant__ TensorMap d_map, const __grid_constant__ Out out, int k, int m_tiles,
    int n_tiles, int data_parallel_tiles, int tail_tiles, int splits, int prefetched_k_steps, int a_rows,
    float* workspace FUSED_PARAMETER)
{
    extern __shared__ __align__(1024) char stages[];
    __shared__ __align__(8) u64 full[STAGES], empty[STAGES];
    __shared__ __align__(8) u64 may_multiply[2];  // with PING_PONG: a consumer may start its next mainloop
    __shared__ __align__(8) u64 landed[StagedTile::BARRIERS], free_again[1];  // of the staged operand

    // The shuffle tells ptxas that the number is uniform in the warp.
    int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    u32 ring = shared_address(stages);
    u32 full_at = shared_address(full), empty_at = shared_address(empty);
    // The epilogue's buffers for D, or the staged operand in their place; the raw ring is behind the buffers.
    u32 buffers = ring + STAGES * STAGE_BYTES;
    u32 rank = CLUSTER > 1 ? cluster_rank() : 0;
    u32 below = rank % CLUSTER_M, beside = rank % TILES / CLUSTER_M;  // its place in the cluster: along M, along N
    int m_clusters = m_tiles / CLUSTER_M, n_clusters = n_tiles / CLUSTER_N;
    int k_steps = (k + BLOCK_K - 1) / BLOCK_K;
    const int a_extent = A_K_MAJOR ? a_rows : BLOCK_M;
    Schedule work(blockIdx.x / CLUSTER, gridDim.x / CLUSTER, data_parallel_tiles, tail_tiles, splits,
                  k_steps);

    // Barriers.
    if (threadIdx.x == 0) {
        prefetch(a);
        prefetch(b);
#if TWO_B
        prefetch(up);
#endif
#if STAGED >= 0
        prefetch(staged);
#endif
        if (TMA_OUT) prefetch_tensor_map(d_map);
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(full_at + 8 * i, 4 * LOADERS + HAS_TMA);
            mbarrier_init(empty_at + 8 * i, SHARERS * MULTICAST_PEERS);
        }
        for (int i = 0; PING_PONG && i < 2; ++i) mbarrier_init(shared_address(&may_multiply[i]), 1);
        for (int i = 0; STAGED >= 0 && i < StagedTile::BARRIERS; ++i) mbarrier_init(shared_address(&landed[i]), 1);
        if (STAGED >= 0) mbarrier_init(shared_address(free_again), SHARERS);
        mbarrier_init_fence();
    }
    if (CLUSTER > 1) {
        cluster_sync();
    } else {
        __syncthreads();
    }
    griddepcontrol_launch_dependents();

    int stage = 0;
    u32 parity = 0;
    if (warpgroup == 0) {
        // Producer by TMA. Thread 32 prefetches the first tiles to L2 while the kernels ahead in the
        // stream end; thread 0 then loads.
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (Schedule next(work);
            HAS_TMA && prefetched_k_steps && threadIdx.x == 32 && next.advance()) {
            if (SPLIT > 1) next.split(rank);
            Tile tile(next.tile, m_clusters, n_clusters);
            int row = (tile.row * CLUSTER_M + below) * BLOCK_M;
            int column = (tile.column * CLUSTER_N + beside) * B_COLUMNS;
            int of_a = matrix_of(a, tile.batch), of_b = matrix_of(b, tile.batch);
            int end = min(next.first + prefetched_k_steps, next.last);
#pragma unroll 1
            for (int k_step = next.first; k_step < end; ++k_step) {
                int p = k_step * BLOCK_K;
                prefetch_tile_l2<A_K_MAJOR, CLUSTER_N>(a, a_extent, row, p, of_a, beside);
                prefetch_tile_l2<B_K_MAJOR, CLUSTER_M, B_BOX_COLUMNS>(b, B_COLUMNS, column, p, of_b, below);
#if TWO_B
                prefetch_tile_l2<B_K_MAJOR, CLUSTER_M, B_BOX_COLUMNS>(up, B_COLUMNS, column, p, of_b, below);
#endif
            }
        }
        if (threadIdx.x || !HAS_TMA) return;
        griddepcontrol_wait();
        constexpr unsigned short COLUMN = (1 << CLUSTER_M) - 1;
        unsigned short with_b = COLUMN << (beside * CLUSTER_M), with_a = 0;
        for (int i = 0; i < CLUSTER_N; ++i) with_a |= 1 << (below + i * CLUSTER_M);
        for (int taken = 0; work.advance(); ++taken) {
            if (SPLIT > 1) work.split(rank);
            Tile tile(work.tile, m_clusters, n_clusters);
            int row = (tile.row * CLUSTER_M + below) * BLOCK_M;
            int column = (tile.column * CLUSTER_N + beside) * B_COLUMNS;
            int of_a = matrix_of(a, tile.batch), of_b = matrix_of(b, tile.batch);
#pragma unroll 1  // unrolled by four it takes two or three times as long to compile, and is no faster
            for (int k_step = work.first; k_step < work.last; ++k_step) {
                int p = k_step * BLOCK_K;
                mbarrier_wait(empty_at + 8 * stage, parity ^ 1);
                u32 barrier = full_at + 8 * stage, to = ring + stage * STAGE_BYTES;
                mbarrier_arrive_expect_tx(barrier, (A_UNALIGNED ? 0 : a_extent * LINE_BYTES) +
                                            (B_UNALIGNED ? 0 : B_BYTES));
                load_tile<A_K_MAJOR, CLUSTER_N>(to, a, a_extent, row, p, of_a, beside, barrier, with_a);
                load_tile<B_K_MAJOR, CLUSTER_M, B_BOX_COLUMNS>(to + A_BYTES, b, B_COLUMNS, column, p, of_b,
                                                               below, barrier, with_b);
#if TWO_B
                load_tile<B_K_MAJOR, CLUSTER_M, B_BOX_COLUMNS>(to + A_BYTES + B_BYTES / 2, up, B_COLUMNS, column,
                                                               p, of_b, below, barrier, with_b);
#endif
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
#if STAGED >= 0
            if (work.slot < 0) {
                const int of_d = (tile.column * CLUSTER_N + beside) * OUT_N;
                const u32 landed_at = shared_address(&landed[taken % StagedTile::BARRIERS]);
                const StagedLoads loads{staged, landed_at, row, of_d, matrix_of(staged, tile.batch)};
                if constexpr (StagedTile::TAKEN == 0) {
                    mbarrier_wait(shared_address(free_again), taken % 2 ^ 1);
                    loads.load(buffers);
                } else {
                    loads.load(ring, stage, parity, full_at, empty_at);
                }
            }
#endif
        }
        // No block may end while another of the cluster still writes to its shared memory or signals
        // its barriers.
        for (int i = 0; TILES > 1 && i < STAGES; ++i) {
            mbarrier_wait(empty_at + 8 * stage, parity ^ 1);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    } else if (warpgroup <= LOADERS) {
        // Producers by cp.async, for operands that are not 16-byte aligned.
        setmaxnreg_dec<LOADER_REGISTERS>();
        if constexpr (HAS_UNALIGNED) {
            LoaderA of_a;
            LoaderB of_b;
            u32 raw_ring = buffers + OUT_BUFFERS_BYTES;
            int thread = threadIdx.x - 128;
            // By a shuffle, or the compiler computes them again at each step.
            u32 full_there = __shfl_sync(~0u, full_at, 0);
            u32 empty_there = __shfl_sync(~0u, empty_at, 0);
            Steps copied(work), finished(work);
            griddepcontrol_wait();
            // Starts the copies of the next step to the raw ring, if there is one.
            auto start = [&](u32 raw) {
                if (copied.advance(rank)) {
                    if (copied.is_first) {
                        Tile tile(copied.work.tile, m_clusters, n_clusters);
                        int k_at = copied.work.first * BLOCK_K;
                        of_a.start_tile(a, tile.row * BLOCK_M, k_at, tile.batch, thread);
                        of_b.start_tile(b, tile.column * BLOCK_N, k_at, tile.batch, thread);
                    }
                    of_a.start(raw, a, copied.is_first, thread);
                    of_b.start(raw + LoaderA::RAW_BYTES, b, copied.is_first, thread);
                }
                cp_async_commit_group();
            };
#pragma unroll 1
            for (int i = 0; i < RAW_STAGES - 1; ++i) start(raw_ring + i * RAW_BYTES);
            u32 raw = raw_ring, before = raw_ring + (RAW_STAGES - 1) * RAW_BYTES;
            while (finished.advance(rank)) {
                cp_async_wait_group<RAW_STAGES - 2>();
                __syncwarp();  // then the copies of the other lanes have arrived too
                if (finished.is_first) {
                    Tile tile(finished.work.tile, m_clusters, n_clusters);
                    int k_at = finished.work.first * BLOCK_K;
                    of_a.finish_tile(a, tile.row * BLOCK_M, k_at, tile.batch, thread);
                    of_b.finish_tile(b, tile.column * BLOCK_N, k_at, tile.batch, thread);
                } else {
                    u32 to = ring + stage * STAGE_BYTES;
                    mbarrier_wait(empty_there + 8 * stage, parity ^ 1);
                    of_a.finish(before, raw, to, thread);
                    of_b.finish(before + LoaderA::RAW_BYTES, raw + LoaderA::RAW_BYTES, to + A_BYTES,
                                thread);
                    fence_proxy_async();
                    __syncwarp();
                    if (thread % 32 == 0) mbarrier_arrive<false>(full_there + 8 * stage);
                    if (++stage == STAGES) stage = 0, parity ^= 1;
                }
                start(before);
                before = raw;
                raw += RAW_BYTES;
                if (raw == raw_ring + RAW_STAGES * RAW_BYTES) raw = raw_ring;
            }
        }
    } else {
        // Consumers.
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        griddepcontrol_wait();
        int consumer = warpgroup - 1 - LOADERS, thread = threadIdx.x % 128;
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
        u32 next_buffer = 0;  // of the warp's two for D
        Sums sum;
        for (int taken = 0; work.advance(); ++taken) {
            if (PING_PONG && taken % 2 != consumer) {
                // The other consumer multiplies this tile: go past its stages.
                int stages_on = stage + work.last - work.first + (work.slot < 0 ? StagedTile::TAKEN : 0);
                parity ^= stages_on / STAGES % 2;
                stage = stages_on % STAGES;
                continue;
            }
            if (SPLIT > 1) work.split(rank);
#ifdef EPILOGUE
            KeptRow kept;
            if (work.slot < 0) {
                const Tile tile(work.tile, m_clusters, n_clusters);
                kept.load(FUSED, tile.batch, (tile.column * CLUSTER_N + beside) * OUT_N, out, lane);
            }
#endif
            if (PING_PONG) {
                // The mainloops run in the order of the tiles. Otherwise a consumer that waits for a
                // stage one pass through the ring too early would see the parity of an older
                // fill, and take the stage for full.
                int others = taken / 2 + consumer;  // mainloops of the other consumer to wait for
                mbarrier_wait(shared_address(&may_multiply[consumer]), others % 2 ^ 1);
            }
            int previous = -1;
#pragma unroll K_STEPS_UNROLLED
            for (int k_step = work.first; k_step < work.last; ++k_step) {
                mbarrier_wait(full_at + 8 * stage, parity);
                u32 at = ring + stage * STAGE_BYTES;
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < ROWS / 64; ++i) {
                    // K-major and MN-major alike: swizzled rows in groups of 8.
                    u64 of_a = wgmma_descriptor<128>(at + (mine * (ROWS / 64) + i) * BOX_BYTES, BOX_BYTES);
                    u64 of_b = wgmma_descriptor<2 * B_BOX_COLUMNS>(at + A_BYTES,
                                                                   2 * B_BOX_COLUMNS * BLOCK_K);
#pragma unroll
                    for (int step = 0; step < BLOCK_K / 16; ++step) {
                        // 16 of k are 32 bytes of a row (K-major), or 16 rows (MN-major), in units of
                        // 16 bytes.
                        wgmma(sum[i], of_a + step * (A_K_MAJOR ? 2 : 128),
                              of_b + step * (B_K_MAJOR ? 2 : 2 * B_BOX_COLUMNS),
                              (k_step - work.first) | step);
                    }
                }
                wgmma_commit_group();
                wgmma_wait_group<1>();  // the k-step before is done: its stage may be filled again
                if (previous >= 0) release(previous);
                previous = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            // One thread may arrive for its warpgroup: wgmma keeps the four warps together.
            if (PING_PONG && thread == 0) {
                mbarrier_arrive<false>(shared_address(&may_multiply[1 - consumer]));
            }
            wgmma_wait_group<0>();
            accumulator_fence(sum);
            if constexpr (SPLIT > 1) {
                add_split(sum, ring, rank, mine * 128 + thread);
                if (rank > 0) return;
            } else {
                release(previous);
            }
            Tile tile(work.tile, m_clusters, n_clusters);
            int row = (tile.row * CLUSTER_M + below) * BLOCK_M + mine * ROWS + warp * 16;
            int column = (tile.column * CLUSTER_N + beside) * OUT_N;
            u32 own = buffers + (consumer * 4 + warp) * 2 * OUT_BYTES;
            if (STREAM_K && work.slot >= 0) {
                store_partial(sum, workspace, work.slot * TILES + rank, mine * 128 + thread);
            } else {
                const Out of_tile = of_batch(out, tile.batch), stored = for_stores(of_tile);
                const int own_row = row + lane / 4, own_column = column + 2 * (lane % 4);
#ifdef EPILOGUE
                if constexpr (THROUGH_BUFFERS) {
                    const Boxes boxes{own, lane, row, column, (unsigned)tile.batch};
                    const StagedTile from{ring, stage, mine};
                    constexpr int BARRIERS = StagedTile::BARRIERS;
                    if (STAGED >= 0) {
                        mbarrier_wait(shared_address(&landed[taken % BARRIERS]), taken / BARRIERS % 2);
                    }
                    finish_by_tma(sum, boxes, d_map, of_tile, FUSED, kept, from, consumer, thread,
                                  shared_address(free_again), release, next_buffer);
                    stage += StagedTile::TAKEN;
                    if (stage >= STAGES) stage -= STAGES, parity ^= 1;
                    continue;
                }
                finish(sum, own_row, own_column, of_tile, tile.batch, FUSED);
#endif
                if constexpr (TMA_OUT) {
                    tma_store_tile(sum, own, lane, d_map, row, column, tile.batch, stored.alpha,
                                   next_buffer);
                } else if constexpr (OUT_COLUMN_MAJOR) {
                    store_tile(sum, own_row, own_column, stored);
                } else if constexpr (OUT_FLOAT || ADDS_C) {
                    store_float_rows(sum, own, lane, row, column, stored);
                } else {
                    store_rows(sum, own, lane, row, column, stored);
                }
            }
        }
        if (TMA_OUT && lane == 0) tma_store_wait_group_read<0>();
    }
}
