// Barriers: with counts and votes, named ones, and those of a warp.

extern "C" __global__ void counting(const int* a, int* out) {
    int t = threadIdx.x;
    int* o = out + (blockIdx.x * blockDim.x + t) * 3;
    int x = a[blockIdx.x * blockDim.x + t];
    o[0] = __syncthreads_count(x > 0);
    o[1] = __syncthreads_and(x > -95) != 0;
    o[2] = __syncthreads_or(x > 95) != 0;
}

// Two halves of a block, each with a barrier of its own, then both with a third.
extern "C" __global__ void named(const int* a, int* out) {
    __shared__ int tile[128];
    int t = threadIdx.x, half = t / 64;
    tile[t] = a[t];
    asm volatile("bar.sync %0, 64;" ::"r"(half + 1) : "memory");
    int x = tile[half * 64 + (t * 7 + 3) % 64];
    asm volatile("bar.sync 3, 128;" ::: "memory");
    tile[t] = x;
    __syncthreads();
    out[t] = tile[127 - t];
}

// One half produces and only arrives; the other waits.
extern "C" __global__ void producer_consumer(const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    if (t < 64) {
        tile[t] = a[t] * 3;
        __threadfence_block();
        asm volatile("bar.arrive 1, 128;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 128;" ::: "memory");
        out[t - 64] = tile[127 - t];
    }
}

extern "C" __global__ void warp_barrier(const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x, warp = t & ~31;
    tile[t] = a[t];
    __syncwarp();
    int x = tile[warp + ((t + 1) & 31)];
    __syncwarp();
    tile[t] = x * 2;
    __syncwarp(0xffffffffu);
    out[t] = tile[warp + ((t + 2) & 31)];
}

extern "C" __global__ void fences(volatile int* flag, int* data, int* out) {
    data[threadIdx.x] = threadIdx.x * 5;
    __threadfence();
    __threadfence_system();
    __threadfence_block();
    __syncthreads();
    if (threadIdx.x == 0) *flag = 1;
    __syncthreads();
    out[threadIdx.x] = data[threadIdx.x ^ 1] + *flag;
}
