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
// x times the normal distribution's share below x: of |x| the other way round, h, by 2 to a polynomial that
// was fitted to its logarithm for errors of h, which are at most 4 * 2^-24. Without a branch, and without
// the cancellation of 1 + erf. At 13, h is below 2^-126, which is 0 here (PTX ISA 9.7.3.20, ex2).
__device__ inline float f_gelu(float x) {
    const float w = fminf(fabsf(x), 13);
    float h = fmaf(fmaf(1.917636237526594e-05f, w, -6.5861573456182e-04f), w, 7.754435669825377e-03f);
    h = fmaf(fmaf(fmaf(fmaf(h, w, -5.29654219748014e-02f), w, -0.4590602388416676f), w, -1.1511220551568162f), w,
             -0.9999996934344179f);
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(h));
    return fmaf(-w, h, x < 0 ? 0 : x);
}
__device__ inline double f_gelu(double x) {
    const double w = fmin(fabs(x), 40);
    return fma(-w, 0.5 * erfc(w * 0.70710678118654752), x < 0 ? 0 : x);
}
__device__ inline float f_sqrt(float x) { return sqrtf(x); }
__device__ inline double f_sqrt(double x) { return sqrt(x); }
__device__ inline float f_rsqrt(float x) { return rsqrtf(x); }
__device__ inline double f_rsqrt(double x) { return rsqrt(x); }
