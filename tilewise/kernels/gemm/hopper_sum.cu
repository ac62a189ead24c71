// The second kernel where hopper.cu divides tiles along k, by the same macros.

#include "hopper_config.cuh"
#include "hopper_schedule.cuh"
#include "hopper_store.cuh"
#include "hopper_partial.cuh"

// D of the shared tiles: the sums of their parts, added in the order of k. Blocks along x for the
// tiles of all clusters' blocks, along y for 8 of their columns.
extern "C" __global__ void __launch_bounds__(128 * CONSUMERS) hopper_sum(
    const __grid_constant__ Out out, int m_tiles, int n_tiles, int whole, int rest, int parts,
    float* workspace)
{
    constexpr int AT_ONCE = 16 / (ROWS / 64);  // parts, of which all loads are in flight
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
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
    Out of_tile = of_batch(out, tile.batch);
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
        store_pair(sum[i].x, sum[i].y, row + 64 * i, column, of_tile);
        store_pair(sum[i].z, sum[i].w, row + 64 * i + 8, column, of_tile);
    }
}
