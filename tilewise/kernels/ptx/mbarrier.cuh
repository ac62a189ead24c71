// Barriers in shared memory (PTX ISA 9.7.13.15, mbarrier), by their shared-memory addresses.
//
// A barrier completes when all arrivals and all expected bytes are there, and then its parity flips.
// Who waits names the parity of the completion that it waits for, 0 for the first.
#pragma once
#include "../ptx/types.cuh"

__device__ inline void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ inline void mbarrier_init_fence() {  // 9.7.13.4, fence.mbarrier_init
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// With REMOTE, the barrier may be another block's of the cluster.
template <bool REMOTE> __device__ inline void mbarrier_arrive(u32 barrier) {
    if (REMOTE) {
        asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
    } else {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
    }
}

__device__ inline void mbarrier_wait(u32 barrier, u32 parity) {
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(barrier), "r"(parity) : "memory");
}
