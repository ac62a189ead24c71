// D = alpha A B + beta C for any shape, strides and dtype: a block computes a tile of D from tiles
// of A and B in shared memory, a thread 4 x 4 elements of it in registers.
//
// Macros: INPUT and OUTPUT, the elements' types (convert.cuh); ACCUMULATE, the type of the
// accumulators.
#include "epilogue.cuh"
#include "general_tile.cuh"

struct Product {
    long long m, n, k, batch;
    double alpha, beta;  // already rounded to ACCUMULATE
    BatchedMatrix<const INPUT> a, b;
    BatchedMatrix<const OUTPUT> c;
    BatchedMatrix<OUTPUT> d;
};

extern "C" __global__ void __launch_bounds__(THREADS) gemm_general(const Product p FUSED_PARAMETER) {
    __shared__ Tile a_tile, b_tile;
    const int tx = threadIdx.x % EDGE, ty = threadIdx.x / EDGE;
    const ACCUMULATE alpha = (ACCUMULATE)p.alpha, beta = (ACCUMULATE)p.beta;
    const long long across = (p.n + BLOCK - 1) / BLOCK, down = (p.m + BLOCK - 1) / BLOCK;
    const long long k = p.alpha == 0 ? 0 : p.k;  // with alpha 0, A and B are not read

    for (long long batch = blockIdx.z; batch < p.batch; batch += gridDim.z)
    for (long long tile = blockIdx.x; tile < across * down; tile += gridDim.x) {
        const long long top = tile / across * BLOCK, left = tile % across * BLOCK;
        const INPUT* a = p.a.pointer + batch * p.a.batch_stride;
        const INPUT* b = p.b.pointer + batch * p.b.batch_stride;
        ACCUMULATE sum[EACH][EACH] = {};
        for (long long step = 0; step < k; step += BLOCK_K) {
            load(a_tile, a, p.a.row_stride, p.a.column_stride, top, p.m, step, k);
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
                if (row >= p.m || column >= p.n) continue;
                ACCUMULATE value = epilogue(sum[i][j], alpha, beta, [&] {
                    return to_float(p.c.pointer[batch * p.c.batch_stride
                        + row * p.c.row_stride + column * p.c.column_stride]);
                });
                value = FUSED(value, batch, row, column);
                p.d.pointer[batch * p.d.batch_stride + row * p.d.row_stride
                    + column * p.d.column_stride] = from_float<OUTPUT>(value);
            }
    }
}
