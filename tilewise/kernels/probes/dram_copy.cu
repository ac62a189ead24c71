// The ceiling of the GPU's memory: a copy of far more than the L2 cache holds.
//
// In a round a block copies 32 KB, eight loads of 16 bytes a thread and then eight stores, and
// goes on by as many pieces as there are blocks.
//
// Launch: 256 threads; ``from`` and ``to`` have ``rounds`` pieces of 32 KB a block.

constexpr int THREADS = 256;
constexpr int LOADS = 8;

extern "C" __global__ void __launch_bounds__(THREADS)
    dram_copy(int rounds, const uint4* __restrict__ from, uint4* __restrict__ to) {
    size_t at = (size_t)blockIdx.x * (LOADS * THREADS) + threadIdx.x;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        uint4 piece[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; ++j) piece[j] = from[at + j * THREADS];
#pragma unroll
        for (int j = 0; j < LOADS; ++j) to[at + j * THREADS] = piece[j];
        at += (size_t)gridDim.x * (LOADS * THREADS);
    }
}
