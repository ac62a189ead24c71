// Global memory, with what C++ has no words for.
#pragma once
#include "../ptx/types.cuh"

// PTX ISA 9.7.9.8, ld: 16 bytes that nobody reads again; L1 keeps no line for them.
__device__ inline longlong2 ld_global_no_allocate(const void* from) {
    longlong2 x;
    asm volatile("ld.global.L1::no_allocate.v2.b64 {%0, %1}, [%2];" : "=l"(x.x), "=l"(x.y) : "l"(from));
    return x;
}

// 9.7.9.11, st: one store of 16 bytes, which ptxas does not always make of an assignment.
__device__ inline void st_global(void* to, uint4 x) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

// 9.7.9.15, prefetch: the line at ``from`` to the L2 cache.
__device__ inline void prefetch_l2(const void* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}
