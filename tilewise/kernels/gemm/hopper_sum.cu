// The reduction of the stream-K tail: D of the tiles whose k several clusters of hopper.cu divided. It
// is compiled with the macros of the launch of hopper.cu ahead of it.

#include "hopper_config.cuh"
#include "hopper_schedule.cuh"
#include "hopper_store.cuh"
#include "hopper_partial.cuh"

// Adds the partial sums of each tile in the order of k. Blocks along x are for the tiles of all blocks
// of the clusters, along y for 8 columns each.
extern "C" __global__ void __launch_bounds__(128 * CONSUMERS) hopper_sum(
    const __grid_constant__ Out out, int m_tiles, int n_tiles, int data_parallel_tiles,
    int tail_tiles, int splits, float* workspace)
{
    constexpr int AT_ONCE = 16 / (ROWS / 64);  // splits whose loads are all in flight
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
    int tail_tile = blockIdx.x / TILES, rank = blockIdx.x % TILES;
    float4 sum[ROWS / 64] = {};
    for (int split = 0; split < splits; split += AT_ONCE) {
        float4 x[AT_ONCE][ROWS / 64];
#pragma unroll
        for (int s = 0; s < AT_ONCE; ++s) {
            int slot = ((split + s) * tail_tiles + tail_tile) * TILES + rank;
#pragma unroll
            for (int i = 0; i < ROWS / 64; ++i) {
                if (split + s < splits) {
                    x[s][i] = *partial(workspace, slot, i, blockIdx.y, threadIdx.x);
                }
            }
        }
#pragma unroll
        for (int s = 0; s < AT_ONCE; ++s) {
#pragma unroll
            for (int i = 0; i < ROWS / 64; ++i) {
                if (split + s >= splits) continue;
                sum[i].x += x[s][i].x;
                sum[i].y += x[s][i].y;
                sum[i].z += x[s][i].z;
                sum[i].w += x[s][i].w;
            }
        }
    }
    Tile tile(data_parallel_tiles + tail_tile, m_tiles / CLUSTER_M, n_tiles / CLUSTER_N);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, mine = threadIdx.x / 128;
    int row = (tile.row * CLUSTER_M + rank % CLUSTER_M) * BLOCK_M + mine * ROWS + warp * 16;
    int column = (tile.column * CLUSTER_N + rank / CLUSTER_M) * BLOCK_N + blockIdx.y * 8;
    row += lane / 4;
    column += 2 * (lane % 4);
    Out of_tile = of_batch(out, tile.batch);
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
        store_pair(sum[i].x, sum[i].y, row + 64 * i, column, of_tile);
        store_pair(sum[i].z, sum[i].w, row + 64 * i + 8, column, of_tile);
    }
}
