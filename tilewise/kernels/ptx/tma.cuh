// The Tensor Memory Accelerator (compute capability 9.0): bulk copies of boxes that tensor maps
// describe (PTX ISA 9.7.9.27.1, cp.async.bulk.tensor). What lies outside the tensor reads as zeros
// and is not written.
#pragma once
#include "../ptx/types.cuh"

// As the driver encodes it (cuTensorMapEncodeTiled); a kernel parameter by value.
struct alignas(64) TensorMap {
    char bytes[128];
};

// 9.7.9.27.1.2. With MULTICAST, to the same offset in each block of the cluster whose bit is set in
// ``blocks``, and to the barrier at the same offset there.
template <bool MULTICAST>
__device__ inline void tma_load(u32 to, const TensorMap& map, int x, int y, int z, u32 barrier, u16 blocks) {
    if (MULTICAST) {
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks) : "memory");
    } else {
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier) : "memory");
    }
}

// 9.7.9.27.1.4, cp.async.bulk.prefetch.tensor: to the L2 cache.
__device__ inline void tma_prefetch_l2(const TensorMap& map, int x, int y, int z) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(&map), "r"(x), "r"(y), "r"(z) : "memory");
}

// 9.7.9.27.1.2. With EVICT_FIRST the box's lines are the first that L2 evicts, as they are not read again soon.
// The policy is what createpolicy.fractional.L2::evict_first returns.
template <bool EVICT_FIRST = false>
__device__ inline void tma_store(const TensorMap& map, u32 from, int x, int y, int z) {
    if (EVICT_FIRST) {
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group.L2::cache_hint "
                     "[%0, {%1, %2, %3}], [%4], %5;" ::"l"(&map), "r"(x), "r"(y), "r"(z), "r"(from), "l"(0x12F0000000000000ull) : "memory");
        return;
    }
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map), "r"(x), "r"(y), "r"(z), "r"(from) : "memory");
}

__device__ inline void tma_store_commit_group() {  // 9.7.9.25.3, cp.async.bulk.commit_group
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// 9.7.9.25.3: until all but this thread's last N groups have read their sources.
template <int N> __device__ inline void tma_store_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

__device__ inline void prefetch_tensor_map(const TensorMap& map) {  // 9.7.9.15, prefetch
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// 9.7.13.4: orders this thread's accesses to shared memory ahead of bulk copies' and wgmma's.
__device__ inline void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
