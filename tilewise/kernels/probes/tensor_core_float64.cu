// The ceiling of tensor cores in double: products between registers, and nothing else in the loop.
//
// A warp has SUMS tiles of 16 x 8, which do not wait for one another, and adds to each of them the
// product of the same 16 x 8 and 8 x 8 elements, of ``values``. A round is one product for each.
//
// Launch: any grid and block of whole warps; ``values`` has six doubles a lane of a warp, and ``out``
// takes a double a thread, the total of its sums.

#include "../ptx/mma.cuh"

constexpr int SUMS = 8;

extern "C" __global__ void tensor_core_float64(int rounds, const double* values, double* out) {
    double x[2][2], y[2], sum[SUMS][4] = {};
    const double* own = values + threadIdx.x % 32 * 6;
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i % 2][i / 2] = own[i];
#pragma unroll
    for (int i = 0; i < 2; ++i) y[i] = own[4 + i];
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < SUMS; ++i) mma_m16n8k8(sum[i], x, y);
    }
    double total = 0;
#pragma unroll
    for (int i = 0; i < SUMS; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) total += sum[i][j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}
