// Each thread adds to a word of shared memory at the place that it is given, or stands aside where
// the place is negative: any pattern of banks, and of threads that meet at one word, one a warp.
// RETURNS: the threads take what was there before.

#define LANES 32

// A block is a warp, and fills its memory first. Dynamic shared memory: words unsigneds.
extern "C" __global__ void shared_atomic(int words, const int* at, unsigned* out, unsigned* before) {
    extern __shared__ unsigned places[];
    unsigned lane = threadIdx.x;
    for (unsigned i = lane; i < words; i += LANES) places[i] = 0;
    __syncthreads();
    int mine = at[blockIdx.x * LANES + lane];
    if (mine >= 0) {
#if RETURNS
        before[blockIdx.x * LANES + lane] = atomicAdd(&places[mine], lane + 2);
#else
        atomicAdd(&places[mine], lane + 2);
#endif
    }
    __syncthreads();
    for (unsigned i = lane; i < words; i += LANES) out[blockIdx.x * words + i] = places[i];
}
