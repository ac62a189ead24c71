// The reduction of the stream-K tail: D of the tiles whose k several clusters of hopper.cu divided.
//
// It is bound by memory, so the tile's sizes are arguments: a few variants serve all of hopper.cu's.
//
// Macros: those of hopper_out.cuh; ROW_BLOCKS, blocks of 64 rows of a consumer warpgroup; PAIRS and
// INTERLEAVED as in hopper_config.cuh.

#include "../ptx/grid.cuh"
#include "hopper_out.cuh"
#include "hopper_tile.cuh"

#ifndef ROW_BLOCKS
#define ROW_BLOCKS 1
#endif

constexpr int MOST_CONSUMERS = 3;
#ifndef INTERLEAVED
#define INTERLEAVED 0
#endif
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
        const float x = finished(gate, up, row, column_of_d, of_tile, tile.batch, FUSED);
        if (row < out.m && column_of_d < out.n) store_one(x, row, column_of_d, stored);
    };
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS; ++i) {
        store(sum[i].x, sum[i].y, row + 64 * i);
        store(sum[i].z, sum[i].w, row + 64 * i + 8);
    }
#else
#if PAIRS
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS; ++i) {
        const float4 gate = sum[i], up = sum[i + ROW_BLOCKS];
        auto pair = [&](float gate, float up, int y, int x) {
            return finished(gate, up, row + 64 * i + y, column + x, of_tile, tile.batch, FUSED);
        };
        sum[i] = make_float4(pair(gate.x, up.x, 0, 0), pair(gate.y, up.y, 0, 1), pair(gate.z, up.z, 8, 0),
                             pair(gate.w, up.w, 8, 1));
    }
    auto element = [](float x, int, int) { return x; };
#else
    auto element = [&](float x, int row, int column) {
        return finished(x, row, column, of_tile, tile.batch, FUSED);
    };
#endif
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS; ++i) {
        const int below = row + 64 * i, next = column + 1;
        store_pair(element(sum[i].x, below, column), element(sum[i].y, below, next), below, column,
                   stored);
        store_pair(element(sum[i].z, below + 8, column), element(sum[i].w, below + 8, next), below + 8,
                   column, stored);
    }
#endif
}
