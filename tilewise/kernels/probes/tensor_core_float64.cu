// The ceiling of tensor cores in double: products between registers, and nothing else in the loop.
//
// A warp has SUMS tiles of 16 x 8, which do not wait for one another, and adds to each of them the
// product of the same 16 x 8 and 8 x 8 elements, of ``values``. A round is one product for each.
//
// Launch: any grid and block of whole warps; ``values`` has six doubles a lane of a warp, and ``out``
// takes a double a thread, the total of its sums.

constexpr int SUMS = 8;

extern "C" __global__ void tensor_core_float64(int rounds, const double* values, double* out) {
    double x[4], y[2], sum[SUMS][4] = {};
    const double* own = values + threadIdx.x % 32 * 6;
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = own[i];
#pragma unroll
    for (int i = 0; i < 2; ++i) y[i] = own[4 + i];
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < SUMS; ++i) {
            asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+d"(sum[i][0]), "+d"(sum[i][1]), "+d"(sum[i][2]), "+d"(sum[i][3])
                : "d"(x[0]), "d"(x[1]), "d"(x[2]), "d"(x[3]), "d"(y[0]), "d"(y[1]));
        }
    }
    double total = 0;
#pragma unroll
    for (int i = 0; i < SUMS; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) total += sum[i][j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}
