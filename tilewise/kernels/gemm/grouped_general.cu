// Grouped products of any shape, strides and dtype, on any device: as general.cu, over the tiles of all
// groups. The rows of A and D are in groups and each has a B of its own, or with K_IN_GROUPS k is in
// groups and each has a D of its own. Group g reaches from offsets[g - 1] (0 for the first) to offsets[g].
//
// Macros: those of general_tile.cuh; OUTPUT, the type of D; OFFSET, the type of the offsets; K_IN_GROUPS.
#include "epilogue.cuh"
#include "general_tile.cuh"

struct GroupedProduct {
    long long m, n, k, groups;  // m or k, whichever is in groups, is the sum over all groups
    BatchedMatrix<const INPUT> a, b;
    BatchedMatrix<OUTPUT> d;
    const OFFSET* offsets;
};

extern "C" __global__ void __launch_bounds__(THREADS)
grouped_general(const GroupedProduct p FUSED_PARAMETER) {
    __shared__ Tile a_tile, b_tile;
    const int tx = threadIdx.x % EDGE, ty = threadIdx.x / EDGE;
    const long long across = (p.n + BLOCK - 1) / BLOCK, total = K_IN_GROUPS ? p.k : p.m;

    long long begin = 0, next = blockIdx.x;  // counted from the group's first tile
    for (long long group = 0; group < p.groups; ++group) {
        // Offsets that are not in order, or lie outside the array, are clamped.
        const long long end = max(begin, min((long long)p.offsets[group], total));
        const long long down = ((K_IN_GROUPS ? p.m : end - begin) + BLOCK - 1) / BLOCK;
        const INPUT* b = p.b.pointer + (K_IN_GROUPS ? 0 : group * p.b.batch_stride);
        OUTPUT* d = p.d.pointer + (K_IN_GROUPS ? group * p.d.batch_stride : 0);
        for (; next < down * across; next += gridDim.x) {
            const long long top = next / across * BLOCK + (K_IN_GROUPS ? 0 : begin);
            const long long left = next % across * BLOCK, bottom = K_IN_GROUPS ? p.m : end;
            ACCUMULATE sum[EACH][EACH] = {};
            const long long k = K_IN_GROUPS ? end : p.k;
            for (long long step = K_IN_GROUPS ? begin : 0; step < k; step += BLOCK_K) {
                load(a_tile, p.a.pointer, p.a.row_stride, p.a.column_stride, top, bottom, step, k);
                load(b_tile, b, p.b.column_stride, p.b.row_stride, left, p.n, step, k);
                __syncthreads();
                #pragma unroll
                for (int s = 0; s < BLOCK_K; ++s) {
                    ACCUMULATE x[EACH], y[EACH];
                    #pragma unroll
                    for (int i = 0; i < EACH; ++i) x[i] = a_tile[s][ty + i * EDGE];
                    #pragma unroll
                    for (int j = 0; j < EACH; ++j) y[j] = b_tile[s][tx + j * EDGE];
                    #pragma unroll
                    for (int i = 0; i < EACH; ++i)
                        #pragma unroll
                        for (int j = 0; j < EACH; ++j) sum[i][j] += x[i] * y[j];
                }
                __syncthreads();
            }
            #pragma unroll
            for (int i = 0; i < EACH; ++i)
                #pragma unroll
                for (int j = 0; j < EACH; ++j) {
                    const long long row = top + ty + i * EDGE, column = left + tx + j * EDGE;
                    if (row >= bottom || column >= p.n) continue;
                    const ACCUMULATE value = FUSED(sum[i][j], group, row, column);
                    d[row * p.d.row_stride + column * p.d.column_stride] = from_float<OUTPUT>(value);
                }
        }
        next -= down * across;
        begin = end;
    }
}
