// The ceiling of shared memory: 16-byte loads without bank conflicts.
//
// A load's 32 lanes take 512 consecutive bytes, four wavefronts of 128. A round is LOADS of them,
// one from each part of the block's 32 KB; the next round begins 16 bytes further, so that it is
// no repetition of the last.
//
// Launch: 256 threads; ``out`` takes an unsigned a thread: all it loaded, exclusive or.

constexpr int THREADS = 256;
constexpr int LOADS = 8;

extern "C" __global__ void __launch_bounds__(THREADS) shared_read(int rounds, unsigned* out) {
    __shared__ uint4 data[LOADS * THREADS];
    for (int i = threadIdx.x; i < 4 * LOADS * THREADS; i += THREADS) {
        ((unsigned*)data)[i] = i * 2654435761u;
    }
    __syncthreads();
    unsigned base = (unsigned)__cvta_generic_to_shared(data), at = threadIdx.x;
    unsigned total = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        unsigned from = base + at * 16;
#pragma unroll
        for (int j = 0; j < LOADS; ++j) {
            unsigned x, y, z, w;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                         : "r"(from + j * THREADS * 16));
            total ^= x ^ y;
            total ^= z ^ w;
        }
        at = (at + 1) % THREADS;
    }
    out[blockIdx.x * THREADS + threadIdx.x] = total;
}
