// Bulk copies by tensor maps (TMA), and the barriers that count them: PTX that only Hopper has, one
// instruction a function. The sections are those of the PTX ISA.
#pragma once

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

// A tensor map as the driver encodes it (cuTensorMapEncodeTiled); a kernel parameter by value.
struct alignas(64) TensorMap {
    char bytes[128];
};

// A matrix of those that a tensor map has. Beyond its ends are zeros.
struct MapMatrix {
    const TensorMap& map;
    int number;
};

__device__ inline u32 shared_address(const void* p) {  // 9.7.9.20: cvta
    return (u32)__cvta_generic_to_shared(p);
}

// Barriers in shared memory (9.7.13.15: mbarrier). A barrier's phase turns when all arrivals and
// all announced bytes are there; the parity waited for is that of the phase that ends.

__device__ inline void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ inline void barrier_fence_init() {  // 9.7.13.4: fence.mbarrier_init
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// With REMOTE, the barrier may be another block's, of the cluster.
template <bool REMOTE> __device__ inline void barrier_arrive(u32 barrier) {
    if (REMOTE) {
        asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
    } else {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
    }
}

__device__ inline void barrier_wait(u32 barrier, u32 parity) {
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// Bulk tensor copies (9.7.9.27.1.2: cp.async.bulk.tensor).

// With MULTICAST, to the same place in every block of the cluster that ``blocks`` has a bit for.
template <bool MULTICAST>
__device__ inline void tma_load(u32 to, const TensorMap& map, int x, int y, int z, u32 barrier,
                                unsigned short blocks) {
    if (MULTICAST) {
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
                     "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks)
                     : "memory");
    } else {
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                     "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier)
                     : "memory");
    }
}

// To the L2 cache (9.7.9.27.1.4: cp.async.bulk.prefetch.tensor).
__device__ inline void tma_near(const TensorMap& map, int x, int y, int z) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(&map),
                 "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ inline void tma_store(const TensorMap& map, u32 from, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group "
                 "[%0, {%1, %2, %3}], [%4];" ::"l"(&map),
                 "r"(x), "r"(y), "r"(z), "r"(from)
                 : "memory");
}

__device__ inline void tma_store_commit() {  // 9.7.9.25.3: cp.async.bulk.commit_group
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the sources of all but the last ``N`` groups may be written again.
template <int N> __device__ inline void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

__device__ inline void tma_prefetch(const TensorMap& map) {  // 9.7.9.15: prefetch
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ inline void fence_async() {  // 9.7.13.4: between threads and copies
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
