// Clusters of blocks (compute capability 9.0).
#pragma once
#include "../ptx/types.cuh"

__device__ inline void cluster_sync() {  // PTX ISA 9.7.13.3, barrier.cluster
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

__device__ inline u32 cluster_rank() {  // 10.14, %cluster_ctarank
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// 9.7.9.23, mapa: the address in another block's shared memory of what is at ``address`` in this
// block's. Volatile, or the compiler computes it again and again to spare a register.
__device__ inline u32 map_shared(u32 address, u32 block) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
    return there;
}

__device__ inline void st_shared_cluster(u32 address, const float* x) {  // 9.7.9.11, st
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
}
