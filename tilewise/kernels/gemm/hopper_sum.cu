// The reduction of the stream-K tail: D of the tiles whose k several clusters of hopper.cu divided.
//
// It is bound by memory, so the tile's sizes are arguments: a few variants serve all of hopper.cu's.
//
// Macros: those of hopper_out.cuh; ROW_BLOCKS, blocks of 64 rows of a consumer warpgroup; PAIRS and
// INTERLEAVED as in hopper_config.cuh.

#include "../ptx/grid.cuh"
#include "hopper_fused.cuh"
#include "hopper_tile.cuh"

#ifndef ROW_BLOCKS
#define ROW_BLOCKS 1
#endif

constexpr int MOST_CONSUMERS = 3;
#define TWO_B (PAIRS && !INTERLEAVED)
constexpr int SUMS = TWO_B ? 2 * ROW_BLOCKS : ROW_BLOCKS;  // of a thread, four each: gate's, and then up's
constexpr int AT_ONCE = 16 / SUMS;  // splits whose loads are all in flight

// Adds the partial sums of each tile in the order of k. Blocks along x are for the tiles of all blocks
// of the tail's clusters, along y for 8 columns each, of D or if INTERLEAVED of B; their threads are the
// consumers of one tile of hopper.cu, ``block_n`` columns wide.
extern "C" __global__ void __launch_bounds__(128 * MOST_CONSUMERS) hopper_sum(
    const __grid_constant__ Out out, int block_n, int cluster_m, int cluster_n, int m_clusters,
    int n_clusters, int data_parallel_tiles, int tail_tiles, int splits, const float4* workspace
    FUSED_PARAMETER)
{
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    const int cluster = cluster_m * cluster_n;
    const int tail_tile = blockIdx.x / cluster, rank = blockIdx.x % cluster;
    // Of a block's partial sums (hopper_partial.cuh), in float4.
    const int row_block = block_n / 8 * blockDim.x, slot = ROW_BLOCKS * row_block;
    const long long split_stride = (long long)tail_tiles * cluster * slot;
    const float4* from = workspace + (long long)blockIdx.x * slot + blockIdx.y * blockDim.x + threadIdx.x;

    float4 sum[SUMS] = {};
    for (int split = 0; split < splits; split += AT_ONCE) {
        float4 x[AT_ONCE][SUMS];
#pragma unroll
        for (int s = 0; s < AT_ONCE; ++s) {
#pragma unroll
            for (int i = 0; i < SUMS; ++i) {
                // The columns of up begin in the middle of the tile's.
                const int at = i % ROW_BLOCKS * row_block + i / ROW_BLOCKS * (row_block / 2);
                if (split + s < splits) x[s][i] = from[(split + s) * split_stride + at];
            }
        }
#pragma unroll
        for (int s = 0; s < AT_ONCE; ++s) {
#pragma unroll
            for (int i = 0; i < SUMS; ++i) {
                if (split + s >= splits) continue;
                sum[i].x += x[s][i].x;
                sum[i].y += x[s][i].y;
                sum[i].z += x[s][i].z;
                sum[i].w += x[s][i].w;
            }
        }
    }
    const Tile tile(data_parallel_tiles + tail_tile, m_clusters, n_clusters);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, consumer = threadIdx.x / 128;
    const int block_m = 64 * ROW_BLOCKS * (blockDim.x / 128);
    const int row = (tile.row * cluster_m + rank % cluster_m) * block_m + consumer * 64 * ROW_BLOCKS +
                    warp * 16 + lane / 4;
    const int column = (tile.column * cluster_n + rank / cluster_m) * (TWO_B ? block_n / 2 : block_n) +
                       blockIdx.y * 8 + 2 * (lane % 4);
    const Out of_tile = of_batch(out, tile.batch), stored = FUSES ? for_stores(of_tile) : of_tile;
#if INTERLEAVED
    auto store = [&](float gate, float up, int row) {
        const int column_of_d = column / 2;
        if (row >= out.m || column_of_d >= out.n) return;
        const float x = FUSED(scaled(gate, out.alpha), scaled(up, out.alpha), tile.batch, row, column_of_d);
        store_one(x, row, column_of_d, stored);
    };
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS; ++i) {
        store(sum[i].x, sum[i].y, row + 64 * i);
        store(sum[i].z, sum[i].w, row + 64 * i + 8);
    }
#else
#ifdef EPILOGUE
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS; ++i) {
        const Spot at{(unsigned)tile.batch, row + 64 * i, column, out.m, out.n};
        Operands<1> operands;
        operands.load(FUSED, of_tile, at);
        float x[4] = {sum[i].x, sum[i].y, sum[i].z, sum[i].w};
        const float4 more = sum[PAIRS ? i + ROW_BLOCKS : i];
        const float up[4] = {more.x, more.y, more.z, more.w};
        Function<1>()(x, up, operands, FUSED, of_tile, at);
        sum[i] = make_float4(x[0], x[1], x[2], x[3]);
    }
#endif
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS; ++i) {
        const int below = row + 64 * i;
        store_pair(sum[i].x, sum[i].y, below, column, stored);
        store_pair(sum[i].z, sum[i].w, below + 8, column, stored);
    }
#endif
}
