// The tensor cores' own ceiling: operands in shared memory, and no other memory in the loop.
//
// Two warpgroups a block, one block a multiprocessor. A phase is 64 of k: each warpgroup
// multiplies its own 64 rows of A by the block's 256 columns of B, from a ring of STAGES such
// tiles, which ``data`` fills once. A sum is PHASES phases long, as a product with k = 4096.
//
// Macro: INPUT (bfloat16 or float16). Launch: 256 threads, SHARED_BYTES of dynamic shared memory,
// ``data`` as large; ``out`` takes 256 floats a block, each the total of a thread's last sums.

#ifndef INPUT
#define INPUT bfloat16
#endif

#define BLOCK_N 256
#define A_K_MAJOR 1
#define B_K_MAJOR 1
#include "../ptx/shared.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"

constexpr int STAGES = 4;
constexpr int PHASES = 64;
constexpr int A_BYTES = 64 * 64 * 2;  // of one warpgroup
constexpr int B_BYTES = 256 * 64 * 2;
constexpr int STAGE_BYTES = 2 * A_BYTES + B_BYTES;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES;

extern "C" __global__ void __launch_bounds__(256, 1)
    tensor_core_peak(int sums, const uint4* data, float* out) {
    extern __shared__ __align__(1024) char ring[];
    for (int i = threadIdx.x; i < SHARED_BYTES / 16; i += 256) ((uint4*)ring)[i] = data[i];
    fence_proxy_async();
    __syncthreads();

    u32 at = shared_address(ring), mine = threadIdx.x / 128 * A_BYTES;
    float sum[128];
    for (int i = 0; i < sums; ++i) {
#pragma unroll 4
        for (int phase = 0; phase < PHASES; ++phase) {
            u32 stage = at + phase % STAGES * STAGE_BYTES;
            u64 a = wgmma_descriptor<128>(stage + mine, A_BYTES);
            u64 b = wgmma_descriptor<128>(stage + 2 * A_BYTES, A_BYTES);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                wgmma(sum, a + 2 * step, b + 2 * step, phase | step);
            }
            wgmma_commit_group();
            wgmma_wait_group<1>();
        }
    }
    wgmma_wait_group<0>();
    float total = 0;
#pragma unroll
    for (int i = 0; i < 128; ++i) {
        wgmma_accumulator_fence(sum[i]);
        total += sum[i];
    }
    out[blockIdx.x * 256 + threadIdx.x] = total;
}
