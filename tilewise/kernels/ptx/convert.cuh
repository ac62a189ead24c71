// The 16-bit types, without CUDA's headers, and their conversions from and to float.
#pragma once
#include "../ptx/types.cuh"

struct float16 { u16 bits; };
struct bfloat16 { u16 bits; };

__device__ inline float to_float(float x) { return x; }
__device__ inline double to_float(double x) { return x; }

// PTX ISA 9.7.9.22, cvt.
__device__ inline float to_float(float16 x) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
}

// A bfloat16 is the upper half of a float.
__device__ inline float to_float(bfloat16 x) { return __uint_as_float((u32)x.bits << 16); }

// ``from_float<T>`` rounds to nearest, ties to even.
template <typename T> struct FromFloat {
    static __device__ T convert(T x) { return x; }
};
template <> struct FromFloat<float16> {
    static __device__ float16 convert(float x) {
        float16 value;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
        return value;
    }
};
template <> struct FromFloat<bfloat16> {
    static __device__ bfloat16 convert(float x) {
#if __CUDA_ARCH__ >= 800
        bfloat16 value;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
        return value;
#else
        u32 bits = __float_as_uint(x);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return bfloat16{0x7fff};
        return bfloat16{(u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
    }
};
template <typename T, typename From> __device__ inline T from_float(From x) {
    return FromFloat<T>::convert(x);
}

// 9.7.9.22, cvt: two floats to two 16-bit numbers, ``low`` in the lower half.
template <typename T> __device__ inline u32 pack_pair(float low, float high);
template <> __device__ inline u32 pack_pair<float16>(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
template <> __device__ inline u32 pack_pair<bfloat16>(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// What PTX calls a 16-bit type: PTX_TYPE(INPUT) is "bf16" where the macro INPUT is bfloat16.
#define PTX_float16 "f16"
#define PTX_bfloat16 "bf16"
#define PTX_TYPE_OF(type) PTX_##type
#define PTX_TYPE(type) PTX_TYPE_OF(type)
