// D = alpha A B + beta C of 16-bit matrices by tensor cores, with float sums, batched (mma.sync, compute
// capability 8.0). A block computes a tile of D: blocks along x go through the tiles of one matrix of
// the batch after another. Blocks along y divide k (split-K): each stores partial sums, which
// splitk_sum.cu adds up.
//
// cp.async copies tiles of A and B to a ring of STAGES stages of shared memory, STAGES - 1 k-steps ahead.
// Each warp computes a tile of its own, and loads the fragments of 16 of k while it multiplies those
// before.
//
// Macros: INPUT (float16 or bfloat16); OUTPUT (INPUT or float); BLOCK_M, BLOCK_N, a block's tile of D;
// BLOCK_K, the depth of a k-step; WARP_M, WARP_N, a warp's tile; STAGES; BLOCKS, the least number of
// blocks a multiprocessor must hold; A_K_MAJOR and B_K_MAJOR (1 where k is the contiguous
// dimension, 0 for MN-major); A_WIDTH and B_WIDTH, elements of a copy, and A_PARTIAL and B_PARTIAL, 1 where
// they do not divide the contiguous dimension; A_UNALIGNED and B_UNALIGNED, 1 where the matrix is copied by
// mma_unaligned.cuh, whose rows need not be 16-byte aligned and whose width does not matter; D_UNALIGNED, 1
// where the rows of D need not be 16-byte aligned, but its columns are contiguous, beta is 0 and there is no
// caller's function; OVERLAP as in launch.cuh.
#include "mma_product.cuh"
#include "product.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
gemm_mma(const __grid_constant__ Product<u16, OUTPUT, float> p FUSED_PARAMETER) {
    extern __shared__ __align__(128) char shared[];
    begin_launch();
    const Place at(p, BLOCK_M, BLOCK_N);
    const Lines a = {p.a.pointer + at.batch * p.a.batch_stride, p.a.pitch, p.a.count};
    const Lines b = {p.b.pointer + at.batch * p.b.batch_stride, p.b.pitch, p.b.count};
    const unsigned warp = threadIdx.x / 32, top = warp % WARPS_M * WARP_M, left = warp / WARPS_M * WARP_N;
    Sums sum = {};
    multiply(sum, shared_address(shared), a, b, at, top, left);
    store(sum, (float*)shared, p, at, at.top + top, at.left + left, FUSED);
}
