// Shared memory by its 32-bit addresses.
#pragma once
#include "../ptx/types.cuh"

__device__ inline u32 shared_address(const void* p) {  // PTX ISA 9.7.9.20, cvta
    return (u32)__cvta_generic_to_shared(p);
}

// 9.7.9.11, st.

__device__ inline void st_shared(u32 address, u16 x) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(x) : "memory");
}

__device__ inline void st_shared(u32 address, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

__device__ inline void st_shared(u32 address, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

__device__ inline void st_shared(u32 address, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

// 9.7.9.8, ld.

__device__ inline u16 ld_shared_u16(u32 address) {
    u16 x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(address) : "memory");
    return x;
}

__device__ inline float ld_shared_f32(u32 address) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

__device__ inline uint4 ld_shared_v4_u32(u32 address) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(address) : "memory");
    return x;
}

__device__ inline float4 ld_shared_v4_f32(u32 address) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(address) : "memory");
    return x;
}

// 9.7.15.7, stmatrix: four 8 x 8 matrices of 16-bit numbers from a warp's registers to shared
// memory. Lane l gives the address of row l % 8 of matrix l / 8; with TRANSPOSED, of its column.
template <bool TRANSPOSED> __device__ inline void stmatrix_x4(u32 address, const u32 (&x)[4]) {
    if (TRANSPOSED) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
    }
}

// 9.7.14.5.15, ldmatrix: four 8 x 8 matrices of 16-bit numbers from shared memory. Lane l gives the
// address of row l % 8 of matrix l / 8, and lane 4 g + t is given the pair 2 t of row g of each; with
// TRANSPOSED, the rows 2 t and 2 t + 1 of column g.
template <bool TRANSPOSED> __device__ inline void ldmatrix_x4(u32 (&x)[4], u32 address) {
    if (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address) : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address) : "memory");
    }
}
