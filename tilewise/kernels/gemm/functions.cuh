// The functions of a caller's epilogue (fused.cuh), which NVRTC's own math functions lack or name by type.
#pragma once

// NaN where either is.
template <typename T> __device__ inline T f_minimum(T x, T y) { return x != x || x < y ? x : y; }
template <typename T> __device__ inline T f_maximum(T x, T y) { return x != x || x > y ? x : y; }

__device__ inline float f_absolute(float x) { return fabsf(x); }
__device__ inline double f_absolute(double x) { return fabs(x); }
__device__ inline float f_exp(float x) { return expf(x); }
__device__ inline double f_exp(double x) { return exp(x); }
__device__ inline float f_log(float x) { return logf(x); }
__device__ inline double f_log(double x) { return log(x); }
__device__ inline float f_log1p(float x) { return log1pf(x); }
__device__ inline double f_log1p(double x) { return log1p(x); }
__device__ inline float f_tanh(float x) { return tanhf(x); }
__device__ inline double f_tanh(double x) { return tanh(x); }
__device__ inline float f_erf(float x) { return erff(x); }
__device__ inline double f_erf(double x) { return erf(x); }
__device__ inline float f_sigmoid(float x) {
    // PTX ISA 9.7.3.13, rcp: of at most one ulp of error, and 0 where that is below 2^-126. A division
    // has a branch for extremes, past which the compiler interleaves no two elements.
    float value;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(1 + expf(-x)));
    return value;
}
__device__ inline double f_sigmoid(double x) { return 1 / (1 + exp(-x)); }
__device__ inline float f_sqrt(float x) { return sqrtf(x); }
__device__ inline double f_sqrt(double x) { return sqrt(x); }
__device__ inline float f_rsqrt(float x) { return rsqrtf(x); }
__device__ inline double f_rsqrt(double x) { return rsqrt(x); }
