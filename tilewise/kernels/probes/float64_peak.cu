// The ceiling of double arithmetic: fused multiply-adds, and nothing else in the loop.
//
// A thread has CHAINS sums, which do not wait for one another: x = x * factor + factor, so that
// two registers are read and no bank of them is asked twice. A round is ADDS of them.
//
// Launch: any grid and block; ``out`` takes a double a thread, the total of its sums.

constexpr int CHAINS = 8;
constexpr int ADDS = 128;

extern "C" __global__ void float64_peak(int rounds, double factor, double* out) {
    double sum[CHAINS];
#pragma unroll
    for (int j = 0; j < CHAINS; ++j) sum[j] = threadIdx.x + j;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < ADDS; ++i) {
            asm volatile("fma.rn.f64 %0, %0, %1, %1;" : "+d"(sum[i % CHAINS]) : "d"(factor));
        }
    }
    double total = 0;
#pragma unroll
    for (int j = 0; j < CHAINS; ++j) total += sum[j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}
