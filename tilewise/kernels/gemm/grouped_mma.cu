// Grouped products of 16-bit matrices by mma.sync, with float accumulators (compute capability 8.0). It
// computes tiles as mma.cu does, in persistent blocks that take the tiles of all groups in turn. The rows
// of A and D are in groups and each has a B of its own, or with K_IN_GROUPS k is in groups and each has a
// D of its own. Where the groups end is read on the device (groups.cuh).
//
// Macros: those of mma.cu and of groups.cuh; K_IN_GROUPS. A_WIDTH and B_WIDTH are 1 where the contiguous
// dimension is in groups, which begin anywhere.
#include "groups.cuh"
#include "mma_product.cuh"
#include "product.cuh"

// A group's tile of D: the fields of Place.
struct GroupPlace { unsigned batch, part, top, left, begin, end; };

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
grouped_mma(const __grid_constant__ Product<u16, OUTPUT, float> p, const OFFSET* offsets,
            int groups FUSED_PARAMETER) {
    extern __shared__ __align__(128) char shared[];
    __shared__ Groups of_groups;
    begin_launch();
    const int across = (p.n - 1) / BLOCK_N + 1;
    auto down = [&](int length) { return ((K_IN_GROUPS ? (int)p.m : length) + BLOCK_M - 1) / BLOCK_M; };
    of_groups.read(offsets, groups, K_IN_GROUPS ? p.k : p.m,
                   [&](int length) { return down(length) * across; });
    const unsigned warp = threadIdx.x / 32, top = warp % WARPS_M * WARP_M, left = warp / WARPS_M * WARP_N;
    for (int next = blockIdx.x;; next += gridDim.x) {
        const int group = of_groups.find(next, groups);
        if (group < 0) return;
        const unsigned begin = of_groups.begin(group), end = of_groups.ends[group];
        const uint2 tile = tile_of(next - of_groups.starts[group], down(end - begin), across, p.group);
        const GroupPlace at{(unsigned)group, 0, tile.x * BLOCK_M + (K_IN_GROUPS ? 0 : begin),
                            tile.y * BLOCK_N, K_IN_GROUPS ? begin : 0, K_IN_GROUPS ? end : p.k};
        Product<u16, OUTPUT, float> of_group = p;
        of_group.beta = 0;
        if (!K_IN_GROUPS) of_group.m = end;
        const Lines a = {p.a.pointer, p.a.pitch, of_group.m};
        const Lines b = {p.b.pointer + group * p.b.batch_stride, p.b.pitch, p.n};
        Sums sum = {};
        multiply(sum, shared_address(shared), a, b, at, top, left);
        store(sum, (float*)shared, of_group, at, at.top + top, at.left + left, FUSED);
        __syncthreads();  // all threads have stored: the next tile's copies may begin
    }
}
