// The ceiling of tensor cores in 16 bits by mma: products between registers, summed in float, and
// nothing else in the loop.
//
// A warp has SUMS tiles of 16 x 8, which do not wait for one another, and adds to each of them the
// product of the same 16 x 16 and 16 x 8 elements, of ``values``. A round is one product for each.
//
// Macro: BFLOAT16 (1 or 0: float16). Launch: any grid and block of whole warps; ``values`` has
// twelve elements a lane of a warp, and ``out`` takes a float a thread, the total of its sums.

#if BFLOAT16
#define TYPE "bf16"
#else
#define TYPE "f16"
#endif

constexpr int SUMS = 8;

extern "C" __global__ void tensor_core_mma(int rounds, const unsigned short* values, float* out) {
    unsigned x[4], y[2];
    float sum[SUMS][4] = {};
    const unsigned* own = (const unsigned*)values + threadIdx.x % 32 * 6;
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = own[i];
#pragma unroll
    for (int i = 0; i < 2; ++i) y[i] = own[4 + i];
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < SUMS; ++i) {
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "
                "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])
                : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        }
    }
    float total = 0;
#pragma unroll
    for (int i = 0; i < SUMS; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) total += sum[i][j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}
