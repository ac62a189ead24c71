// Products by the tensor cores, a warp at a time (PTX ISA 9.7.14.5, mma).
#pragma once
#include "../ptx/types.cuh"

// 8 x 8 x 4 of double (compute capability 8.0). Lane 4 g + t holds of A row g and of B column g at k
// t, and of D row g, columns 2 t and 2 t + 1.
__device__ inline void mma_m8n8k4(double& d0, double& d1, double a, double b) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(d0), "+d"(d1) : "d"(a), "d"(b));
}

// 16 x 8 x 8 of double. Lane 4 g + t holds of A rows g and g + 8 at k t and t + 4, of B column g at
// the same k, and of D rows g and g + 8, columns 2 t and 2 t + 1: ``a[row][k]``. Since compute
// capability 9.0 it is one instruction; before, one for each half of the rows and of k.
__device__ inline void mma_m16n8k8(double (&d)[4], const double (&a)[2][2], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                 : "d"(a[0][0]), "d"(a[1][0]), "d"(a[0][1]), "d"(a[1][1]), "d"(b[0]), "d"(b[1]));
#else
    #pragma unroll
    for (int k = 0; k < 2; ++k)
        #pragma unroll
        for (int half = 0; half < 2; ++half)
            mma_m8n8k4(d[2 * half], d[2 * half + 1], a[half][k], b[k]);
#endif
}

// 16 x 8 x 16 of INPUT, a macro that is float16 or bfloat16, with float sums. Lane 4 g + t holds of A
// rows g and g + 8, and of B column g, the elements 2 t and 2 t + 1 of k, and those 8 further on; of
// D rows g and g + 8, columns 2 t and 2 t + 1.
#ifdef INPUT
#include "../ptx/convert.cuh"
__device__ inline void mma_m16n8k16(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32." PTX_TYPE(INPUT) "." PTX_TYPE(INPUT) ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif
