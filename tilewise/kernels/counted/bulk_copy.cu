// Bulk copies of bytes: `copies` threads of a block each bring `size` bytes to shared memory, and
// from there to `out`. With BLOCKS above 1, the blocks of a cluster bring theirs to one another by
// multicast, and each block writes what all of them brought.

#ifndef BLOCKS
#define BLOCKS 1
#endif
#define LANES 32
typedef unsigned long long u64;

// A block is a warp, and each copy's size a multiple of 16. Dynamic shared memory: BLOCKS * copies *
// size bytes.
extern "C" __global__
#if BLOCKS > 1
__cluster_dims__(BLOCKS)
#endif
void bulk_copy(int size, int copies, const char* in, char* out)
{
    extern __shared__ __align__(128) char bytes[];
    __shared__ u64 barrier;
    unsigned lane = threadIdx.x;
    unsigned at = (unsigned)__cvta_generic_to_shared(bytes);
    unsigned told = (unsigned)__cvta_generic_to_shared(&barrier);
    if (lane == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(told) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     ::"r"(told), "r"(BLOCKS * copies * size) : "memory");
    }
    __syncthreads();
    const char* from = in + ((u64)blockIdx.x * copies + lane) * size;
#if BLOCKS > 1
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (lane < copies) {
        unsigned to = at + (blockIdx.x % BLOCKS * copies + lane) * size;
        unsigned short blocks = (1 << BLOCKS) - 1;
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1], %2, [%3], %4;"
                     ::"r"(to), "l"(from), "r"(size), "r"(told), "h"(blocks) : "memory");
    }
#else
    if (lane < copies) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     " [%0], [%1], %2, [%3];"
                     ::"r"(at + lane * size), "l"(from), "r"(size), "r"(told) : "memory");
    }
#endif
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again; }" ::"r"(told) : "memory");
    if (lane < BLOCKS * copies) {
        char* to = out + ((u64)blockIdx.x * BLOCKS * copies + lane) * size;
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     ::"l"(to), "r"(at + lane * size), "r"(size) : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
#if BLOCKS > 1
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
