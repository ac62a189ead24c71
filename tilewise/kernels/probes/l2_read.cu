// The ceiling of the L2 cache: the same few megabytes again and again, past L1.
//
// The data are cut into chunks of 32 KB. In a round a block reads one, and then goes on by as many
// chunks as there are blocks, so that a chunk comes to another multiprocessor each time.
//
// Launch: 256 threads; ``chunks`` is a power of two; ``out`` takes an unsigned a thread: all it
// loaded, exclusive or.

constexpr int THREADS = 256;
constexpr int LOADS = 8;

extern "C" __global__ void __launch_bounds__(THREADS)
    l2_read(int rounds, int chunks, const uint4* data, unsigned* out) {
    unsigned chunk = blockIdx.x, total = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        const uint4* from = data + (chunk & (chunks - 1)) * (LOADS * THREADS) + threadIdx.x;
#pragma unroll
        for (int j = 0; j < LOADS; ++j) {
            unsigned x, y, z, w;
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                         : "l"(from + j * THREADS));
            total ^= x ^ y;
            total ^= z ^ w;
        }
        chunk += gridDim.x;
    }
    out[blockIdx.x * THREADS + threadIdx.x] = total;
}
