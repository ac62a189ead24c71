// A sum: each thread adds what it comes by, a warp adds its threads' sums by shuffles, the first
// warp adds the warps' sums from shared memory, and one thread a block adds that to the result.
// The block is a multiple of 32 threads.

#define WARP 32
#define EVERY 0xffffffffu  // all lanes of a warp

__device__ float warp_sum(float x) {
    for (int down = WARP / 2; down > 0; down /= 2) x += __shfl_down_sync(EVERY, x, down);
    return x;
}

extern "C" __global__ void reduction(int n, const float* in, float* sum) {
    __shared__ float sums[WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    float x = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        x += in[i];
    }
    x = warp_sum(x);
    if (lane == 0) sums[warp] = x;
    __syncthreads();
    if (warp > 0) return;
    x = warp_sum(lane < blockDim.x / WARP ? sums[lane] : 0);
    if (lane == 0) atomicAdd(sum, x);
}
