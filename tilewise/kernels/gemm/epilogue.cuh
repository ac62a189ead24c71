// The epilogue, which all kernels share: what becomes of an accumulator before D is stored.
//
//     D = f(alpha * accumulator + beta * C)
//
// It is computed in the accumulator's type; from_float (convert.cuh) then rounds it to D's type. C is
// read only where beta is not 0: a NaN in C must not spread otherwise. f is the function that a caller
// gave, if one did: Fused (fused.cuh).
#pragma once
#include "../ptx/convert.cuh"
#include "fused.cuh"

// The two halves, for kernels whose accumulators pass through shared memory before C is read.
template <typename T> __device__ inline T scaled(T accumulator, T alpha) {
    return alpha * accumulator;
}
template <typename T> __device__ inline T plus_c(T value, T beta, T c) { return value + beta * c; }

// ``load_c()`` returns the element of C; it is called only where ``has_c()``.
template <typename T, typename LoadC, typename HasC>
__device__ inline T epilogue(T accumulator, T alpha, T beta, const LoadC& load_c, const HasC& has_c) {
    T value = scaled(accumulator, alpha);
    if (beta != 0 && has_c()) value = plus_c(value, beta, load_c());
    return value;
}
template <typename T, typename LoadC>
__device__ inline T epilogue(T accumulator, T alpha, T beta, const LoadC& load_c) {
    return epilogue(accumulator, alpha, beta, load_c, [] { return true; });
}
