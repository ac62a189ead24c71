// D = alpha*A*B + beta*C on Hopper's tensor cores: 16-bit inputs, float accumulation.
//
// Persistent blocks, one a multiprocessor, in clusters of CLUSTER along m. In each block one
// warpgroup of producers (one thread works) copies tiles of A and B by TMA into a ring of STAGES
// stages, and CONSUMERS warpgroups multiply, each 64 * (BLOCK_M / 64 / CONSUMERS) rows of the
// tile. The blocks of a cluster stand one below the other and read the same tile of B: each
// loads a part of it for all.
//
// Macros: HALF ("bf16" or "f16") and OF_HALF (its conversion in half.cuh), BLOCK_M, BLOCK_N,
// STAGES, CLUSTER, A_BY_K and B_BY_K (1 where k is the contiguous dimension), OUT_FLOAT, TMA_OUT
// (D by bulk copies: 16-bit, rows of whole 16 bytes, beta 0), GROUP_M.

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
#ifndef STAGES
#define STAGES 4
#endif
#ifndef CLUSTER
#define CLUSTER 1
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
#ifndef TMA_OUT
#define TMA_OUT 0
#endif
#ifndef GROUP_M
#define GROUP_M 16
#endif

#include "half.cuh"
#include "hopper.cuh"

static_assert(BLOCK_M % 64 == 0 && BLOCK_M <= 256, "whole wgmma rows");
static_assert(BLOCK_N == 64 || BLOCK_N == 128 || BLOCK_N == 256, "one wgmma wide");

constexpr int BLOCK_K = 64;  // 128 bytes, the width of the swizzle
constexpr int CONSUMERS = BLOCK_M >= 128 ? 2 : 1;
constexpr int ROWS = BLOCK_M / CONSUMERS;  // of one consumer warpgroup
constexpr int THREADS = 128 * (1 + CONSUMERS);
constexpr int A_BYTES = BLOCK_M * BLOCK_K * 2;
constexpr int B_BYTES = BLOCK_N * BLOCK_K * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int CHUNK_BYTES = 64 * BLOCK_K * 2;  // 64 rows or columns of an operand, one copy
// Rows of a copy: an operand whose k is contiguous takes one; else 64 columns of it are one.
constexpr int A_BOX = A_BY_K ? BLOCK_M : 64;
constexpr int B_BOX = B_BY_K ? BLOCK_N / CLUSTER : 64;
constexpr int ROW_BYTES = 2 * BLOCK_K;
constexpr int OUT_BYTES = 16 * ROW_BYTES;  // a warp's 16 rows of 64 columns of D, twice

// The tile of C that a block computes as its number ``index``. Tiles go by groups of GROUP_M rows
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

__device__ inline float read_out(const void* c, u64 at) {
    if (OUT_FLOAT) return ((const float*)c)[at];
    return OF_HALF(((const unsigned short*)c)[at]);
}

// A thread's two neighbouring elements of D, which may end at the edge between them.
__device__ inline void store_pair(float x, float y, u64 row, int column, int n, float beta,
                                  const void* c, u64 ldc, void* d, u64 ldd, bool is_paired) {
    bool both = column + 1 < n;
    if (beta != 0) {
        x += beta * read_out(c, row * ldc + column);
        if (both) y += beta * read_out(c, row * ldc + column + 1);
    }
    u64 at = row * ldd + column;
    if (OUT_FLOAT) {
        float* out = (float*)d + at;
        if (both && is_paired) {
            *(float2*)out = make_float2(x, y);
        } else {
            out[0] = x;
            if (both) out[1] = y;
        }
    } else {
        unsigned short* out = (unsigned short*)d + at;
        u32 pair = pack_halves(x, y);
        if (both && is_paired) {
            *(u32*)out = pair;
        } else {
            out[0] = pair;
            if (both) out[1] = pair >> 16;
        }
    }
}

// wgmma's D (PTX ISA 9.7.15.5.1.2): lane l of warp w holds rows 16 w + l / 4 and 8 below, and
// columns 8 j + 2 (l % 4) and the next.
__device__ inline void store_tile(float (&sum)[ROWS / 64][BLOCK_N / 2], int row, int column,
                                  int batch, int m, int n, float alpha, bool is_empty, float beta,
                                  const void* c, u64 ldc, u64 c_step, void* d, u64 ldd, u64 d_step) {
    constexpr int SIZE = OUT_FLOAT ? 4 : 2;
    c = (const char*)c + batch * c_step * SIZE;
    d = (char*)d + batch * d_step * SIZE;
    bool is_paired = ldd % 2 == 0 && (u64)d % (2 * SIZE) == 0;
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int at = row + 64 * i + 8 * half;
            if (at >= m) continue;
#pragma unroll
            for (int j = 0; j < BLOCK_N / 8; ++j) {
                int to = column + 8 * j;
                float x = is_empty ? 0 : alpha * sum[i][4 * j + 2 * half];
                float y = is_empty ? 0 : alpha * sum[i][4 * j + 2 * half + 1];
                if (to < n) store_pair(x, y, at, to, n, beta, c, ldc, d, ldd, is_paired);
            }
        }
    }
}

// The same by bulk copies, 64 columns at a time, through two buffers of this warp's own.
__device__ inline void copy_tile(float (&sum)[ROWS / 64][BLOCK_N / 2], u32 buffers, int lane,
                                 const TensorMap& map, int row, int column, int batch,
                                 float alpha, bool is_empty) {
    int matrix = lane / 8, line = lane % 8;
    u32 own = (line + 8 * (matrix & 1)) * ROW_BYTES;
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int part = 0; part < BLOCK_N / 64; ++part) {
            u32 buffer = buffers + (part % 2) * OUT_BYTES;
            if (lane == 0) tma_store_wait_read<1>();
            __syncwarp();
#pragma unroll
            for (int q = 0; q < 4; ++q) {  // 16 columns: four 8 x 8 matrices
                u32 pairs[4];
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    int at = 32 * part + 8 * q + 2 * r;
                    float x = is_empty ? 0 : alpha * sum[i][at];
                    float y = is_empty ? 0 : alpha * sum[i][at + 1];
                    pairs[r] = pack_halves(x, y);
                }
                // The swizzle of 128 bytes: 16-byte pieces change places by the row.
                u32 piece = (2 * q + matrix / 2) ^ line;
                store_matrices(buffer + own + 16 * piece, pairs[0], pairs[1], pairs[2], pairs[3]);
            }
            fence_async();
            __syncwarp();
            if (lane == 0) {
                tma_store(map, buffer, column + 64 * part, row + 64 * i, batch);
                tma_store_commit();
            }
        }
    }
}

// ``m_tiles`` is a multiple of CLUSTER; tiles past C are computed of zeros and not stored.
extern "C" __global__ void __launch_bounds__(THREADS, 1) __cluster_dims__(CLUSTER, 1, 1) hopper(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
    const __grid_constant__ TensorMap d_map, int m, int n, int k, int batches, int a_batches,
    int b_batches, int m_tiles, int n_tiles, float alpha, float beta, const void* c, u64 ldc,
    u64 c_step, void* d, u64 ldd, u64 d_step)
{
    extern __shared__ __align__(1024) char stages[];
    __shared__ __align__(8) u64 full[STAGES], empty[STAGES];

    int warpgroup = threadIdx.x / 128;
    u32 ring = shared_address(stages);
    u32 full_at = shared_address(full), empty_at = shared_address(empty);
    u32 rank = CLUSTER > 1 ? cluster_rank() : 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(full_at + 8 * i, 1);
            barrier_init(empty_at + 8 * i, CONSUMERS * CLUSTER);
        }
        barrier_fence_init();
    }
    if (CLUSTER > 1) {
        cluster_sync();
    } else {
        __syncthreads();
    }

    int phases = (k + BLOCK_K - 1) / BLOCK_K;
    // Clusters take tiles in turn; the blocks of one stand below each other.
    int clusters = gridDim.x / CLUSTER;
    int tiles = batches * (m_tiles / CLUSTER) * n_tiles;
    int stage = 0;
    u32 parity = 0;

    if (warpgroup == 0) {
        registers_fewer<CONSUMERS == 2 ? 40 : 56>();
        if (threadIdx.x != 0) return;
        tma_prefetch(a_map);
        tma_prefetch(b_map);
        for (int index = blockIdx.x / CLUSTER; index < tiles; index += clusters) {
            Tile tile(index, m_tiles / CLUSTER, n_tiles);
            int row = (tile.row * CLUSTER + rank) * BLOCK_M, column = tile.column * BLOCK_N;
            // A matrix that all batches share is one batch.
            int a_batch = min(tile.batch, a_batches - 1), b_batch = min(tile.batch, b_batches - 1);
            for (int phase = 0; phase < phases; ++phase) {
                barrier_wait(empty_at + 8 * stage, parity ^ 1);
                u32 barrier = full_at + 8 * stage, to = ring + stage * STAGE_BYTES;
                barrier_expect(barrier, STAGE_BYTES);
                int p = phase * BLOCK_K;
                for (int i = 0; i < BLOCK_M; i += A_BOX) {
                    tma_load(to + i * ROW_BYTES, a_map, A_BY_K ? p : row + i,
                             A_BY_K ? row + i : p, a_batch, barrier);
                }
                to += A_BYTES;
                for (int i = rank * B_BOX; i < BLOCK_N; i += CLUSTER * B_BOX) {
                    int x = B_BY_K ? p : column + i, y = B_BY_K ? column + i : p;
                    if (CLUSTER == 1) {
                        tma_load(to + i * ROW_BYTES, b_map, x, y, b_batch, barrier);
                    } else {
                        tma_load_multicast(to + i * ROW_BYTES, b_map, x, y, b_batch, barrier,
                                           (1 << CLUSTER) - 1);
                    }
                }
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
        }
        // No block may end while another still writes to its shared memory or signals it.
        for (int i = 0; CLUSTER > 1 && i < STAGES; ++i) {
            barrier_wait(empty_at + 8 * stage, parity ^ 1);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    } else {
        registers_more<CONSUMERS == 2 ? 232 : 240>();
        int mine = warpgroup - 1, thread = threadIdx.x % 128;
        int lane = thread % 32, warp = thread / 32;
        float sum[ROWS / 64][BLOCK_N / 2];
        for (int index = blockIdx.x / CLUSTER; index < tiles; index += clusters) {
            Tile tile(index, m_tiles / CLUSTER, n_tiles);
            int previous = -1;
            for (int phase = 0; phase < phases; ++phase) {
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
                        wgmma<BLOCK_N, 1 - A_BY_K, 1 - B_BY_K>(
                            sum[i], a + step * (A_BY_K ? 2 : 128), b + step * (B_BY_K ? 2 : 128),
                            phase | step);
                    }
                }
                wgmma_commit();
                wgmma_wait<1>();  // the phase before is done: its stage may be filled again
                if (previous >= 0 && thread < CLUSTER) {
                    CLUSTER > 1 ? barrier_arrive_at(empty_at + 8 * previous, thread)
                                : barrier_arrive(empty_at + 8 * previous);
                }
                previous = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            wgmma_wait<0>();
            if (previous >= 0 && thread < CLUSTER) {
                CLUSTER > 1 ? barrier_arrive_at(empty_at + 8 * previous, thread)
                            : barrier_arrive(empty_at + 8 * previous);
            }
            int row = (tile.row * CLUSTER + rank) * BLOCK_M + mine * ROWS + warp * 16;
            int column = tile.column * BLOCK_N;
            if constexpr (TMA_OUT) {
                u32 buffers = ring + STAGES * STAGE_BYTES + (mine * 4 + warp) * 2 * OUT_BYTES;
                copy_tile(sum, buffers, lane, d_map, row, column, tile.batch, alpha, phases == 0);
            } else {
                store_tile(sum, row + lane / 4, column + 2 * (lane % 4), tile.batch, m, n, alpha,
                           phases == 0, beta, c, ldc, c_step, d, ldd, d_step);
            }
        }
        if (TMA_OUT && lane == 0) tma_store_wait_read<0>();
    }
}
