// D = alpha*A*B + beta*C on Hopper's tensor cores: 16-bit inputs, float accumulation.
//
// Persistent blocks, in clusters of CLUSTER_M x CLUSTER_N that take tiles in turn. In each block one
// warpgroup of producers (one thread works) copies tiles of A and B by TMA into a ring of STAGES
// stages, and CONSUMERS warpgroups multiply, BLOCK_M / CONSUMERS rows of the tile each. The
// blocks of a cluster that stand side by side read the same tile of A, those one below the other
// the same tile of B: each loads a part of it for all.
//
// Where there are too few tiles, they are divided along k, in one of two ways. SPLIT blocks, a
// cluster, compute one tile, and the first adds up the others' sums. Or, with SHARED_TILES, several
// clusters compute each of the last tiles (see Schedule): their sums go to a workspace, and a second
// kernel, hopper_sum, adds them up. Both add in the order of k.
//
// Macros: HALF ("bf16" or "f16") and OF_HALF (its conversion in half.cuh), BLOCK_M, BLOCK_N,
// CONSUMERS, STAGES, CLUSTER_M, CLUSTER_N, SPLIT, SHARED_TILES, A_BY_K and B_BY_K (1 where k is the
// contiguous dimension), A_ROWS (of a tile of A, that are copied where k is contiguous; the others
// belong to no row of D), READ_C (beta is not 0), OUT_FLOAT, TMA_OUT (D by bulk copies: 16-bit, rows
// of whole 16 bytes, beta 0), OUT_COLUMNS (of such a copy: 16, 32 or 64), OUT_BY_COLUMNS (the columns
// of C and D are contiguous, not the rows), GROUP_M.

#ifndef HALF
#define HALF "bf16"
#define OF_HALF of_bfloat16
#endif
#ifndef BLOCK_M
#define BLOCK_M 128
#endif
#ifndef BLOCK_N
#define BLOCK_N 256
#endif
#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#ifndef STAGES
#define STAGES 4
#endif
#ifndef CLUSTER_M
#define CLUSTER_M 1
#endif
#ifndef CLUSTER_N
#define CLUSTER_N 1
#endif
#ifndef SPLIT
#define SPLIT 1
#endif
#ifndef A_BY_K
#define A_BY_K 1
#endif
#ifndef B_BY_K
#define B_BY_K 1
#endif
#ifndef OUT_FLOAT
#define OUT_FLOAT 0
#endif
#ifndef READ_C
#define READ_C 1
#endif
#ifndef TMA_OUT
#define TMA_OUT 0
#endif
#ifndef OUT_BY_COLUMNS
#define OUT_BY_COLUMNS 0
#endif
#ifndef OUT_COLUMNS
#define OUT_COLUMNS (BLOCK_N % 64 == 0 ? 64 : BLOCK_N % 32 == 0 ? 32 : 16)
#endif
#ifndef SHARED_TILES
#define SHARED_TILES 0
#endif
#ifndef GROUP_M
#define GROUP_M 16
#endif
#ifndef A_ROWS
#define A_ROWS BLOCK_M
#endif

#include "half.cuh"
#include "hopper.cuh"

constexpr int BLOCK_K = 64;  // 128 bytes, the width of the swizzle
constexpr int ROWS = BLOCK_M / CONSUMERS;  // of one consumer warpgroup
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int TILES = CLUSTER_M * CLUSTER_N;  // of a cluster at a time
constexpr int CLUSTER = TILES * SPLIT;
constexpr int SHARERS = CLUSTER_M + CLUSTER_N - 1;  // blocks that copy into one block's stage
constexpr int A_BYTES = BLOCK_M * BLOCK_K * 2;
constexpr int A_COPIED = A_BY_K ? A_ROWS : BLOCK_M;
constexpr int B_BYTES = BLOCK_N * BLOCK_K * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int CHUNK_BYTES = 64 * BLOCK_K * 2;  // 64 rows or columns of an operand, one copy
// Rows of a copy: an operand whose k is contiguous takes one; else 64 columns of it are one.
constexpr int A_BOX = A_BY_K ? A_ROWS / CLUSTER_N : 64;
constexpr int B_BOX = B_BY_K ? BLOCK_N / CLUSTER_M : 64;
constexpr int ROW_BYTES = 2 * BLOCK_K;
constexpr int OUT_BYTES = 16 * OUT_COLUMNS * 2;  // a warp's 16 rows of one bulk copy of D
constexpr int TILE_FLOATS = BLOCK_M * BLOCK_N;  // of one partial sum in the workspace

static_assert(ROWS % 64 == 0 && BLOCK_M <= 256, "whole wgmma rows, one box high");
static_assert(A_BOX % 8 == 0 && B_BOX % 8 == 0, "whole groups of the swizzle");
static_assert(SPLIT == 1 || TILES == 1 && !SHARED_TILES, "one way to divide");
static_assert((SPLIT - 1) * 4 * BLOCK_M * BLOCK_N <= STAGES * STAGE_BYTES, "sums fit the ring");
static_assert(BLOCK_N % 16 == 0 && BLOCK_N <= 256, "one wgmma wide");
static_assert(B_BY_K || BLOCK_N % 64 == 0, "whole boxes of 64 columns");
static_assert(!TMA_OUT || BLOCK_N % OUT_COLUMNS == 0, "whole boxes of D");

// The tile of C that a cluster computes as its number ``index``. Tiles go by groups of GROUP_M rows
// of tiles, down a column within a group, so that the blocks of one time share A and B in L2.
struct Tile {
    int row, column, batch;
    __device__ Tile(int index, int rows, int columns) {
        int of_batch = rows * columns;
        batch = index / of_batch;
        index -= batch * of_batch;
        int group = index / (GROUP_M * columns), first = group * GROUP_M;
        int height = min(rows - first, GROUP_M);
        index -= group * GROUP_M * columns;
        row = first + index % height;
        column = index / height;
    }
};

// The first phase of part ``part`` of ``parts`` of a tile.
__device__ inline int first_phase(int phases, int part, int parts) {
    return (long long)phases * part / parts;
}

// What one cluster computes: the tiles below ``whole`` in turn, and then one part of one of the
// others, which are ``rest`` and have ``parts`` parts each. The same part of all of them comes at
// one time, so that the blocks share A and B in L2.
struct Schedule {
    int unit, units, whole, rest, parts, phases, next;
    bool is_over;
    int tile, first, last, slot;  // of the present one: slot is -1 where it is the whole tile

    __device__ Schedule(int unit, int units, int whole, int rest, int parts, int phases)
        : unit(unit), units(units), whole(whole), rest(rest), parts(parts), phases(phases),
          next(unit), is_over(false) {}

    __device__ bool advance() {
        if (next < whole) {
            tile = next;
            next += units;
            first = 0;
            last = phases;
            slot = -1;
            return true;
        }
        if (!SHARED_TILES || is_over || unit >= rest * parts) return false;
        tile = whole + unit % rest;
        first = first_phase(phases, unit / rest, parts);
        last = first_phase(phases, unit / rest + 1, parts);
        slot = unit;
        is_over = true;
        return true;
    }

    __device__ void split(int rank) {
        first = first_phase(phases, rank, SPLIT);
        last = first_phase(phases, rank + 1, SPLIT);
    }
};

// C and D, and what is to be done to the sums.
struct Out {
    int m, n;
    float alpha, beta;
    const void* c;
    u64 ldc, c_step;
    void* d;
    u64 ldd, d_step;
};

__device__ inline float read_out(const void* c, u64 at) {
    if (OUT_FLOAT) return ((const float*)c)[at];
    return OF_HALF(((const unsigned short*)c)[at]);
}

__device__ inline void write_out(void* d, u64 at, float x) {
    if (OUT_FLOAT) {
        ((float*)d)[at] = x;
    } else {
        ((unsigned short*)d)[at] = pack_halves(x, 0);
    }
}

// Two neighbouring elements of a row of D, which may end at the edge between them.
__device__ inline void store_pair(float x, float y, u64 row, u64 column, const Out& out,
                                  bool is_paired) {
    bool both = column + 1 < out.n;
    u64 step = OUT_BY_COLUMNS ? out.ldd : 1;
    u64 at = OUT_BY_COLUMNS ? column * out.ldd + row : row * out.ldd + column;
    x *= out.alpha;
    y *= out.alpha;
    if (READ_C) {
        u64 from = OUT_BY_COLUMNS ? column * out.ldc + row : row * out.ldc + column;
        x += out.beta * read_out(out.c, from);
        if (both) y += out.beta * read_out(out.c, from + (OUT_BY_COLUMNS ? out.ldc : 1));
    }
    if (both && is_paired) {
        if (OUT_FLOAT) {
            *(float2*)((float*)out.d + at) = make_float2(x, y);
        } else {
            *(u32*)((unsigned short*)out.d + at) = pack_halves(x, y);
        }
    } else {
        write_out(out.d, at, x);
        if (both) write_out(out.d, at + step, y);
    }
}

__device__ inline Out of_batch(Out out, int batch) {
    constexpr int SIZE = OUT_FLOAT ? 4 : 2;
    out.c = (const char*)out.c + batch * out.c_step * SIZE;
    out.d = (char*)out.d + batch * out.d_step * SIZE;
    return out;
}

// Whether a row's elements can be written two at a time.
__device__ inline bool is_paired(const Out& out) {
    return !OUT_BY_COLUMNS && out.ldd % 2 == 0 && (u64)out.d % (OUT_FLOAT ? 8 : 4) == 0;
}

// wgmma's D (PTX ISA 9.7.15.5.1.2): lane l of warp w holds rows 16 w + l / 4 and 8 below, and
// columns 8 j + 2 (l % 4) and the next. ``row`` and ``column`` are those of this thread's first.
__device__ inline void store_tile(float (&sum)[ROWS / 64][BLOCK_N / 2], int row, int column,
                                  const Out& out) {
    bool paired = is_paired(out);
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; ++j) {
        int to = column + 8 * j;
#pragma unroll
        for (int half = 0; half < ROWS / 32; ++half) {
            int at = row + 64 * (half / 2) + 8 * (half % 2);
            float x = sum[half / 2][4 * j + half % 2 * 2];
            float y = sum[half / 2][4 * j + half % 2 * 2 + 1];
            if (at < out.m && to < out.n) store_pair(x, y, at, to, out, paired);
        }
    }
}

// Where 16-byte piece ``piece`` of row ``row`` is in a swizzled box that is ``WIDTH`` elements wide.
template <int WIDTH> __device__ inline u32 swizzled(u32 row, u32 piece) {
    constexpr u32 PIECES = WIDTH / 8;
    return row * (2 * WIDTH) + 16 * (piece ^ (row / (8 / PIECES) % PIECES));
}

// The same by bulk copies, OUT_COLUMNS at a time, through two buffers of this warp's own, in turn.
__device__ inline void copy_tile(float (&sum)[ROWS / 64][BLOCK_N / 2], u32 buffers, int lane,
                                 const TensorMap& map, int row, int column, int batch,
                                 float alpha, u32& turn) {
    // A lane gives the address of a row of 8 elements: of matrix lane / 8 of four, which stand in
    // rows 0 and 8, and then 8 columns further on.
    int matrix = lane / 8, line = lane % 8, below = matrix % 2, beside = matrix / 2;
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int part = 0; part < BLOCK_N / OUT_COLUMNS; ++part) {
            u32 buffer = buffers + turn * OUT_BYTES;
            turn ^= 1;
            if (lane == 0) tma_store_wait_read<1>();
            __syncwarp();
#pragma unroll
            for (int q = 0; q < OUT_COLUMNS / 16; ++q) {
                u32 pairs[4];
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    int at = OUT_COLUMNS / 2 * part + 8 * q + 2 * r;
                    pairs[r] = pack_halves(alpha * sum[i][at], alpha * sum[i][at + 1]);
                }
                u32 to = OUT_BY_COLUMNS ? swizzled<16>(16 * q + 8 * beside + line, below)
                                        : swizzled<OUT_COLUMNS>(8 * below + line, 2 * q + beside);
                store_matrices<OUT_BY_COLUMNS>(buffer + to, pairs);
            }
            fence_async();
            __syncwarp();
            if (lane == 0) {
                int x = column + OUT_COLUMNS * part, y = row + 64 * i;
                tma_store(map, buffer, OUT_BY_COLUMNS ? y : x, OUT_BY_COLUMNS ? x : y, batch);
                tma_store_commit();
            }
        }
    }
}

// Where a consumer thread's partial sums of rows 64 i and columns 8 j are: four floats, neighbours
// of the next thread's.
__device__ inline float4* partial(float* workspace, int slot, int i, int j, int thread) {
    return (float4*)(workspace + (long long)slot * TILE_FLOATS) +
           (i * (BLOCK_N / 8) + j) * (128 * CONSUMERS) + thread;
}

__device__ inline void store_partial(float (&sum)[ROWS / 64][BLOCK_N / 2], float* workspace,
                                     int slot, int thread) {
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int j = 0; j < BLOCK_N / 8; ++j) {
            *partial(workspace, slot, i, j, thread) = make_float4(
                sum[i][4 * j], sum[i][4 * j + 1], sum[i][4 * j + 2], sum[i][4 * j + 3]);
        }
    }
}

// No register of the sum may be read before the wait for it, which the compiler does not know.
__device__ inline void settle(float (&sum)[ROWS / 64][BLOCK_N / 2]) {
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int j = 0; j < BLOCK_N / 2; ++j) asm volatile("" : "+f"(sum[i][j])::"memory");
    }
}

// Adds the other blocks' sums of a tile to the first's, through its ring, which is no longer in use.
__device__ inline void add_split(float (&sum)[ROWS / 64][BLOCK_N / 2], u32 ring, u32 rank,
                                 int thread) {
    constexpr int PIECES = ROWS / 64 * (BLOCK_N / 8), STEP = 16 * 128 * CONSUMERS;
    cluster_sync();
    if (rank > 0) {
        u32 to = cluster_address(ring, 0) + (rank - 1) * (4 * TILE_FLOATS) + 16 * thread;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) cluster_store(to + p * STEP, &sum[0][0] + 4 * p);
    }
    cluster_sync();
    if (rank > 0) return;
    for (int other = 0; other < SPLIT - 1; ++other) {
        u32 from = ring + other * (4 * TILE_FLOATS) + 16 * thread;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            float4 x = shared_load(from + p * STEP);
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
extern "C" __global__ void __launch_bounds__(THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)
hopper(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
    const __grid_constant__ TensorMap d_map, const __grid_constant__ Out out, int k, int batches,
    int a_batches, int b_batches, int m_tiles, int n_tiles, int whole, int rest,
    int parts, float* workspace)
{
    extern __shared__ __align__(1024) char stages[];
    __shared__ __align__(8) u64 full[STAGES], empty[STAGES];

    int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);  // the same in the warp, ptxas is told
    u32 ring = shared_address(stages);
    u32 full_at = shared_address(full), empty_at = shared_address(empty);
    u32 rank = CLUSTER > 1 ? cluster_rank() : 0;
    u32 below = rank % CLUSTER_M, beside = rank % TILES / CLUSTER_M;  // its place in the cluster
    int m_clusters = m_tiles / CLUSTER_M, n_clusters = n_tiles / CLUSTER_N;
    int phases = (k + BLOCK_K - 1) / BLOCK_K;
    Schedule part(blockIdx.x / CLUSTER, gridDim.x / CLUSTER, whole, rest, parts, phases);

    if (threadIdx.x == 0) {
        tma_prefetch(a_map);
        tma_prefetch(b_map);
        if (TMA_OUT) tma_prefetch(d_map);
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(full_at + 8 * i, 1);
            barrier_init(empty_at + 8 * i, CONSUMERS * SHARERS);
        }
        barrier_fence_init();
    }
    if (CLUSTER > 1) {
        cluster_sync();
    } else {
        __syncthreads();
    }
    let_next_kernel_start();
    wait_for_kernels_before();

    int stage = 0;
    u32 parity = 0;
    if (warpgroup == 0) {
        registers_fewer<CONSUMERS == 1 ? 56 : CONSUMERS == 2 ? 40 : 32>();
        if (threadIdx.x != 0) return;
        constexpr unsigned short COLUMN = (1 << CLUSTER_M) - 1;
        unsigned short with_b = COLUMN << (beside * CLUSTER_M), with_a = 0;
        for (int i = 0; i < CLUSTER_N; ++i) with_a |= 1 << (below + i * CLUSTER_M);
        while (part.advance()) {
            if (SPLIT > 1) part.split(rank);
            Tile tile(part.tile, m_clusters, n_clusters);
            int row = (tile.row * CLUSTER_M + below) * BLOCK_M;
            int column = (tile.column * CLUSTER_N + beside) * BLOCK_N;
            // A matrix that all batches share is one batch.
            int a_batch = min(tile.batch, a_batches - 1), b_batch = min(tile.batch, b_batches - 1);
            for (int phase = part.first; phase < part.last; ++phase) {
                barrier_wait(empty_at + 8 * stage, parity ^ 1);
                u32 barrier = full_at + 8 * stage, to = ring + stage * STAGE_BYTES;
                barrier_expect(barrier, A_COPIED * ROW_BYTES + B_BYTES);
                int p = phase * BLOCK_K;
                for (int i = beside * A_BOX; i < A_COPIED; i += CLUSTER_N * A_BOX) {
                    tma_load<(CLUSTER_N > 1)>(to + i * ROW_BYTES, a_map, A_BY_K ? p : row + i,
                                              A_BY_K ? row + i : p, a_batch, barrier, with_a);
                }
                to += A_BYTES;
                for (int i = below * B_BOX; i < BLOCK_N; i += CLUSTER_M * B_BOX) {
                    tma_load<(CLUSTER_M > 1)>(to + i * ROW_BYTES, b_map, B_BY_K ? p : column + i,
                                              B_BY_K ? column + i : p, b_batch, barrier, with_b);
                }
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
        }
        // No block may end while another still writes to its shared memory or signals it.
        for (int i = 0; TILES > 1 && i < STAGES; ++i) {
            barrier_wait(empty_at + 8 * stage, parity ^ 1);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    } else {
        registers_more<CONSUMERS == 1 ? 240 : CONSUMERS == 2 ? 232 : 160>();
        int mine = warpgroup - 1, thread = threadIdx.x % 128;
        int lane = thread % 32, warp = thread / 32;
        // Those whose copies into this block's stage wait for it to be empty: one a thread.
        int next = thread - CLUSTER_M;
        u32 sharer = next < 0 ? beside * CLUSTER_M + thread
                              : below + (next + (next >= (int)beside)) * CLUSTER_M;
        u32 empty_there = TILES > 1 ? cluster_address(empty_at, sharer) : empty_at;
        auto release = [&](int stage) {
            if (thread < SHARERS) barrier_arrive<(TILES > 1)>(empty_there + 8 * stage);
        };
        u32 turn = 0;
        float sum[ROWS / 64][BLOCK_N / 2];
        while (part.advance()) {
            if (SPLIT > 1) part.split(rank);
            int previous = -1;
            for (int phase = part.first; phase < part.last; ++phase) {
                barrier_wait(full_at + 8 * stage, parity);
                u32 at = ring + stage * STAGE_BYTES;
                wgmma_fence();
#pragma unroll
                for (int i = 0; i < ROWS / 64; ++i) {
                    // Both majors: rows of 128 bytes in groups of 8, 1024 bytes a group.
                    u64 a = wgmma_matrix(at + (mine * (ROWS / 64) + i) * CHUNK_BYTES, CHUNK_BYTES,
                                         1024);
                    u64 b = wgmma_matrix(at + A_BYTES, CHUNK_BYTES, 1024);
#pragma unroll
                    for (int step = 0; step < BLOCK_K / 16; ++step) {
                        // 16 of k are 32 bytes along a row, or 16 rows.
                        wgmma(sum[i], a + step * (A_BY_K ? 2 : 128),
                              b + step * (B_BY_K ? 2 : 128), (phase - part.first) | step);
                    }
                }
                wgmma_commit();
                wgmma_wait<1>();  // the phase before is done: its stage may be filled again
                if (previous >= 0) release(previous);
                previous = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            wgmma_wait<0>();
            settle(sum);
            if constexpr (SPLIT > 1) {
                add_split(sum, ring, rank, mine * 128 + thread);
                if (rank > 0) return;
            } else {
                release(previous);
            }
            Tile tile(part.tile, m_clusters, n_clusters);
            int row = (tile.row * CLUSTER_M + below) * BLOCK_M + mine * ROWS + warp * 16;
            int column = (tile.column * CLUSTER_N + beside) * BLOCK_N;
            if (SHARED_TILES && part.slot >= 0) {
                store_partial(sum, workspace, part.slot * TILES + rank, mine * 128 + thread);
            } else if constexpr (TMA_OUT) {
                u32 buffers = ring + STAGES * STAGE_BYTES + (mine * 4 + warp) * 2 * OUT_BYTES;
                copy_tile(sum, buffers, lane, d_map, row, column, tile.batch, out.alpha, turn);
            } else {
                store_tile(sum, row + lane / 4, column + 2 * (lane % 4), of_batch(out, tile.batch));
            }
        }
        if (TMA_OUT && lane == 0) tma_store_wait_read<0>();
    }
}

// D of the shared tiles: the sums of their parts, added in the order of k. Blocks along x for the
// tiles of all clusters' blocks, along y for 8 of their columns.
extern "C" __global__ void __launch_bounds__(128 * CONSUMERS) hopper_sum(
    const __grid_constant__ Out out, int m_tiles, int n_tiles, int whole, int rest, int parts,
    float* workspace)
{
    constexpr int AT_ONCE = 16 / (ROWS / 64);  // parts, of which all loads are in flight
    let_next_kernel_start();
    wait_for_kernels_before();
    int past = blockIdx.x / TILES, rank = blockIdx.x % TILES;
    float4 sum[ROWS / 64] = {};
    for (int part = 0; part < parts; part += AT_ONCE) {
        float4 x[AT_ONCE][ROWS / 64];
#pragma unroll
        for (int s = 0; s < AT_ONCE; ++s) {
            int slot = ((part + s) * rest + past) * TILES + rank;
#pragma unroll
            for (int i = 0; i < ROWS / 64; ++i) {
                if (part + s < parts) {
                    x[s][i] = *partial(workspace, slot, i, blockIdx.y, threadIdx.x);
                }
            }
        }
#pragma unroll
        for (int s = 0; s < AT_ONCE; ++s) {
#pragma unroll
            for (int i = 0; i < ROWS / 64; ++i) {
                if (part + s >= parts) continue;
                sum[i].x += x[s][i].x;
                sum[i].y += x[s][i].y;
                sum[i].z += x[s][i].z;
                sum[i].w += x[s][i].w;
            }
        }
    }
    Tile tile(whole + past, m_tiles / CLUSTER_M, n_tiles / CLUSTER_N);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, mine = threadIdx.x / 128;
    int row = (tile.row * CLUSTER_M + rank % CLUSTER_M) * BLOCK_M + mine * ROWS + warp * 16;
    int column = (tile.column * CLUSTER_N + rank / CLUSTER_M) * BLOCK_N + blockIdx.y * 8;
    row += lane / 4;
    column += 2 * (lane % 4);
    if (column >= out.n) return;
    Out of_tile = of_batch(out, tile.batch);
    bool paired = is_paired(of_tile);
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
        int at = row + 64 * i;
        if (at < out.m) store_pair(sum[i].x, sum[i].y, at, column, of_tile, paired);
        if (at + 8 < out.m) store_pair(sum[i].z, sum[i].w, at + 8, column, of_tile, paired);
    }
}
