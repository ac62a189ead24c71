// The 16-bit types, without CUDA's headers: their bits in an unsigned short.
#pragma once

// PTX ISA 9.7.9.22, "cvt".
__device__ inline float of_float16(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ inline unsigned short to_float16(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// A bfloat16 is the upper half of a float.
__device__ inline float of_bfloat16(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}

__device__ inline unsigned short to_bfloat16(float value) {
#if __CUDA_ARCH__ >= 800
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    // To nearest, ties to even.
    return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}
