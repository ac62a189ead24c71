// The ceiling of the warp schedulers: multiply-adds of floats and rotations of words, in turn.
//
// They go to different pipes, so that no one pipe limits them together. A thread has CHAINS sums
// and as many words, which do not wait for one another, and rotates by a number that the compiler
// does not know, so that no two rotations become one. A round is PAIRS of both.
//
// Launch: any grid and block; ``out`` takes an unsigned a thread: the words and the sums' bits,
// exclusive or.

constexpr int CHAINS = 8;
constexpr int PAIRS = 128;

extern "C" __global__ void issue_rate(int rounds, float factor, unsigned bits, unsigned* out) {
    float sum[CHAINS];
    unsigned word[CHAINS];
#pragma unroll
    for (int j = 0; j < CHAINS; ++j) {
        sum[j] = threadIdx.x + j;
        word[j] = threadIdx.x + j;
    }
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(sum[i % CHAINS]) : "f"(factor));
            asm volatile("shf.l.wrap.b32 %0, %0, %0, %1;" : "+r"(word[i % CHAINS]) : "r"(bits));
        }
    }
    unsigned total = 0;
#pragma unroll
    for (int j = 0; j < CHAINS; ++j) total ^= word[j] ^ __float_as_uint(sum[j]);
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}
