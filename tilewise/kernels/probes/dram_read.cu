// The ceiling of the GPU's memory: far more than the L2 cache holds is read, once.
//
// In a round a block reads 32 KB, eight loads of 16 bytes a thread, and goes on by as many pieces
// as there are blocks. It is fastest with one round and a block for each piece.
//
// Launch: 256 threads; ``data`` has ``rounds`` pieces of 32 KB a block; ``found`` becomes 1 if a
// thread's words, exclusive or, are ``sought``.

constexpr int THREADS = 256;
constexpr int LOADS = 8;

extern "C" __global__ void __launch_bounds__(THREADS)
    dram_read(int rounds, unsigned sought, const uint4* data, unsigned* found) {
    const uint4* from = data + (size_t)blockIdx.x * (LOADS * THREADS) + threadIdx.x;
    unsigned total = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int j = 0; j < LOADS; ++j) {
            unsigned x, y, z, w;
            asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                         : "l"(from + j * THREADS));
            total ^= x ^ y;
            total ^= z ^ w;
        }
        from += (size_t)gridDim.x * (LOADS * THREADS);
    }
    if (total == sought) *found = 1;
}
