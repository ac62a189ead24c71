// D = alpha*A*B + beta*C on Hopper's tensor cores: 16-bit inputs, float accumulation.
//
// Persistent blocks, in clusters of CLUSTER_M x CLUSTER_N that take tiles in turn. In each block one
// warpgroup of producers (one thread works, and another until the kernels before have ended) copies
// tiles of A and B by TMA into a ring of STAGES stages, and CONSUMERS warpgroups multiply, BLOCK_M /
// CONSUMERS rows of the tile each. The blocks of a cluster that stand side by side read the same tile
// of A, those one below the other the same tile of B: each loads a part of it for all. What TMA can't
// read is brought by the threads of two warpgroups more, by way of a second ring (see hopper_load.cuh).
//
// Where there are too few tiles, they are divided along k, in one of two ways. SPLIT blocks, a
// cluster, compute one tile, and the first adds up the others' sums. Or, with STREAM_K, several
// clusters compute each of the last tiles (see Schedule): their sums go to a workspace, and a second
// kernel, hopper_sum (hopper_sum.cu), adds them up. Both add in the order of k.
//
// Macros: those of hopper_config.cuh.

#include "hopper_config.cuh"
#include "hopper_load.cuh"
#include "hopper_schedule.cuh"
#include "hopper_store.cuh"
#include "hopper_partial.cuh"

typedef Loader<A_K_MAJOR, A_COPIED, A_UNALIGNED> LoaderA;
typedef Loader<B_K_MAJOR, BLOCK_N, B_UNALIGNED> LoaderB;
constexpr int RAW_BYTES = LoaderA::RAW_BYTES + LoaderB::RAW_BYTES;  // of a step
// In the consumers' loop: where they are short, what is around wgmma takes a good part of the time.
constexpr int K_STEPS_UNROLLED = ROWS * BLOCK_N <= 64 * 128 ? 4 : 1;
constexpr int OUT_BUFFERS_BYTES = 4 * CONSUMERS * 2 * OUT_BYTES;

// Where sums are small, registers are left for blocks of pack and hopper_sum, to begin beside.
constexpr bool IS_LEAN = !HAS_UNALIGNED && ROWS * BLOCK_N <= 96 * 128 &&
                         (CONSUMERS == 2 || CONSUMERS == 1 && STREAM_K);
constexpr int REGISTERS_FOR = IS_LEAN ? 512 : THREADS;  // threads of a multiprocessor
// Of each thread, so that those of all warpgroups are as many as at the launch.
constexpr int PRODUCER_REGISTERS = IS_LEAN          ? 24
                                   : CONSUMERS == 1 ? 56
                                   : CONSUMERS == 3 || HAS_UNALIGNED ? 32 : 40;
constexpr int LOADER_REGISTERS = CONSUMERS == 1 ? 104 : 72;
constexpr int CONSUMER_REGISTERS = IS_LEAN          ? (CONSUMERS == 1 ? 232 : 176)
                                   : CONSUMERS == 1 ? 240
                                   : CONSUMERS == 3 ? 160
                                   : HAS_UNALIGNED         ? 152
                                                    : 232;
static_assert(PRODUCER_REGISTERS + LOADERS * LOADER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <=
              THREADS / 128 * (65536 / REGISTERS_FOR / 8 * 8), "the others would wait for ever");

// Behind the wait for wgmma, and ahead of what reads the sums.
__device__ inline void accumulator_fence(Sums& sum) {
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int j = 0; j < BLOCK_N / 2; ++j) wgmma_accumulator_fence(sum[i][j]);
    }
}

// Adds the other blocks' sums of a tile to the first's, through its ring, which is no longer in use.
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

// ``m_tiles`` and ``n_tiles`` are multiples of CLUSTER_M and CLUSTER_N; tiles past C are computed of
// zeros and not stored. Of the clusters' tiles, ``whole`` are not shared, and ``rest`` are; there are
// at least rest * parts clusters. With SPLIT, there is a cluster for each tile.
extern "C" __global__ void __launch_bounds__(REGISTERS_FOR, 1) __cluster_dims__(CLUSTER, 1, 1)
hopper(
    const __grid_constant__ Operand<A_UNALIGNED> a, const __grid_constant__ Operand<B_UNALIGNED> b,
    const __grid_constant__ TensorMap d_map, const __grid_constant__ Out out, int k, int m_tiles,
    int n_tiles, int whole, int rest, int parts, float* workspace)
{
    extern __shared__ __align__(1024) char stages[];
    __shared__ __align__(8) u64 full[STAGES], empty[STAGES];

    int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // the same in the warp, ptxas is told
    u32 ring = shared_address(stages);
    u32 full_at = shared_address(full), empty_at = shared_address(empty);
    u32 buffers = ring + STAGES * STAGE_BYTES;
    u32 rank = CLUSTER > 1 ? cluster_rank() : 0;
    u32 below = rank % CLUSTER_M, beside = rank % TILES / CLUSTER_M;  // its place in the cluster
    int m_clusters = m_tiles / CLUSTER_M, n_clusters = n_tiles / CLUSTER_N;
    int k_steps = (k + BLOCK_K - 1) / BLOCK_K;
    Schedule part(blockIdx.x / CLUSTER, gridDim.x / CLUSTER, whole, rest, parts, k_steps);

    if (threadIdx.x == 0) {
        prefetch(a);
        prefetch(b);
        if (TMA_OUT) prefetch_tensor_map(d_map);
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(full_at + 8 * i, 4 * LOADERS + COPIES);
            mbarrier_init(empty_at + 8 * i, CONSUMERS * MULTICAST_PEERS);
        }
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
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (Schedule near(part); L2_PREFETCH && COPIES && threadIdx.x == 32 && near.advance()) {
            if (SPLIT > 1) near.split(rank);
            Tile tile(near.tile, m_clusters, n_clusters);
            int row = (tile.row * CLUSTER_M + below) * BLOCK_M;
            int column = (tile.column * CLUSTER_N + beside) * BLOCK_N;
            int of_a = matrix_of(a, tile.batch), of_b = matrix_of(b, tile.batch);
            for (int k_step = near.first; k_step < min(near.first + L2_PREFETCH, near.last); ++k_step) {
                int p = k_step * BLOCK_K;
                prefetch_tile_l2<A_K_MAJOR, A_COPIED, CLUSTER_N>(a, row, p, of_a, beside);
                prefetch_tile_l2<B_K_MAJOR, BLOCK_N, CLUSTER_M>(b, column, p, of_b, below);
            }
        }
        if (threadIdx.x || !COPIES) return;
        griddepcontrol_wait();
        constexpr unsigned short COLUMN = (1 << CLUSTER_M) - 1;
        unsigned short with_b = COLUMN << (beside * CLUSTER_M), with_a = 0;
        for (int i = 0; i < CLUSTER_N; ++i) with_a |= 1 << (below + i * CLUSTER_M);
        while (part.advance()) {
            if (SPLIT > 1) part.split(rank);
            Tile tile(part.tile, m_clusters, n_clusters);
            int row = (tile.row * CLUSTER_M + below) * BLOCK_M;
            int column = (tile.column * CLUSTER_N + beside) * BLOCK_N;
            int of_a = matrix_of(a, tile.batch), of_b = matrix_of(b, tile.batch);
#pragma unroll 1  // by four, it is compiled two or three times as long, and no faster
            for (int k_step = part.first; k_step < part.last; ++k_step) {
                int p = k_step * BLOCK_K;
                mbarrier_wait(empty_at + 8 * stage, parity ^ 1);
                u32 barrier = full_at + 8 * stage, to = ring + stage * STAGE_BYTES;
                mbarrier_arrive_expect_tx(barrier, (A_UNALIGNED ? 0 : A_COPIED * LINE_BYTES) +
                                            (B_UNALIGNED ? 0 : B_BYTES));
                load_tile<A_K_MAJOR, A_COPIED, CLUSTER_N>(to, a, row, p, of_a, beside, barrier, with_a);
                load_tile<B_K_MAJOR, BLOCK_N, CLUSTER_M>(to + A_BYTES, b, column, p, of_b, below,
                                                      barrier, with_b);
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
        }
        // No block may end while another still writes to its shared memory or signals it.
        for (int i = 0; TILES > 1 && i < STAGES; ++i) {
            mbarrier_wait(empty_at + 8 * stage, parity ^ 1);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    } else if (warpgroup <= LOADERS) {
        setmaxnreg_dec<LOADER_REGISTERS>();
        if constexpr (HAS_UNALIGNED) {
            LoaderA of_a;
            LoaderB of_b;
            u32 raw_ring = buffers + OUT_BUFFERS_BYTES;
            int thread = threadIdx.x - 128;
            // So that they are not computed again at each step.
            u32 full_there = __shfl_sync(~0u, full_at, 0);
            u32 empty_there = __shfl_sync(~0u, empty_at, 0);
            Steps copied(part), finished(part);
            griddepcontrol_wait();
            // Starts copies of the next step, if there is one.
            auto start = [&](u32 raw) {
                if (copied.advance(rank)) {
                    if (copied.is_first) {
                        Tile tile(copied.part.tile, m_clusters, n_clusters);
                        int k_at = copied.part.first * BLOCK_K;
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
                __syncwarp();  // the other lanes' copies are there too
                if (finished.is_first) {
                    Tile tile(finished.part.tile, m_clusters, n_clusters);
                    int k_at = finished.part.first * BLOCK_K;
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
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        griddepcontrol_wait();
        int mine = warpgroup - 1 - LOADERS, thread = threadIdx.x % 128;
        int lane = thread % 32, warp = thread / 32;
        // Those whose copies into this block's stage wait for it to be empty: one a thread.
        int next = thread - CLUSTER_M;
        u32 sharer = next < 0 ? beside * CLUSTER_M + thread
                              : below + (next + (next >= (int)beside)) * CLUSTER_M;
        u32 empty_there = TILES > 1 ? map_shared(empty_at, sharer) : empty_at;
        auto release = [&](int stage) {
            if (thread < MULTICAST_PEERS) mbarrier_arrive<(TILES > 1)>(empty_there + 8 * stage);
        };
        u32 turn = 0;
        Sums sum;
        while (part.advance()) {
            if (SPLIT > 1) part.split(rank);
            int previous = -1;
#pragma unroll K_STEPS_UNROLLED
            for (int k_step = part.first; k_step < part.last; ++k_step) {
                mbarrier_wait(full_at + 8 * stage, parity);
                u32 at = ring + stage * STAGE_BYTES;
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < ROWS / 64; ++i) {
                    // Both majors: rows of 128 bytes in groups of 8, 1024 bytes a group.
                    u64 of_a = wgmma_descriptor(at + (mine * (ROWS / 64) + i) * BOX_BYTES,
                                            BOX_BYTES, 1024);
                    u64 of_b = wgmma_descriptor(at + A_BYTES, BOX_BYTES, 1024);
#pragma unroll
                    for (int step = 0; step < BLOCK_K / 16; ++step) {
                        // 16 of k are 32 bytes along a row, or 16 rows.
                        wgmma(sum[i], of_a + step * (A_K_MAJOR ? 2 : 128),
                              of_b + step * (B_K_MAJOR ? 2 : 128), (k_step - part.first) | step);
                    }
                }
                wgmma_commit_group();
                wgmma_wait_group<1>();  // the phase before is done: its stage may be filled again
                if (previous >= 0) release(previous);
                previous = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            wgmma_wait_group<0>();
            accumulator_fence(sum);
            if constexpr (SPLIT > 1) {
                add_split(sum, ring, rank, mine * 128 + thread);
                if (rank > 0) return;
            } else {
                release(previous);
            }
            Tile tile(part.tile, m_clusters, n_clusters);
            int row = (tile.row * CLUSTER_M + below) * BLOCK_M + mine * ROWS + warp * 16;
            int column = (tile.column * CLUSTER_N + beside) * BLOCK_N;
            u32 own = buffers + (mine * 4 + warp) * 2 * OUT_BYTES;
            if (STREAM_K && part.slot >= 0) {
                store_partial(sum, workspace, part.slot * TILES + rank, mine * 128 + thread);
            } else if constexpr (TMA_OUT) {
                copy_tile(sum, own, lane, d_map, row, column, tile.batch, out.alpha, turn);
            } else if constexpr (OUT_COLUMN_MAJOR) {
                store_tile(sum, row + lane / 4, column + 2 * (lane % 4),
                           of_batch(out, tile.batch));
            } else if constexpr (OUT_FLOAT || READ_C) {
                store_float_rows(sum, own, lane, row, column, of_batch(out, tile.batch));
            } else {
                store_rows(sum, own, lane, row, column, of_batch(out, tile.batch));
            }
        }
        if (TMA_OUT && lane == 0) tma_store_wait_group_read<0>();
    }
}
