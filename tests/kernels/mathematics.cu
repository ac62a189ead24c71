// The mathematical functions, whose last bits the CUDA C++ Programming Guide bounds in ulp.

extern "C" __global__ void functions32(int n, const float* a, const float* b, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i];
    float s, c;
    sincosf(x, &s, &c);
    float* o = out + (long long)i * 24;
    o[0] = sinf(x);
    o[1] = cosf(x);
    o[2] = tanf(x);
    o[3] = expf(x);
    o[4] = exp2f(x);
    o[5] = logf(fabsf(x));
    o[6] = log2f(fabsf(x));
    o[7] = log10f(fabsf(x));
    o[8] = powf(fabsf(x), y);
    o[9] = rsqrtf(fabsf(x));
    o[10] = cbrtf(x);
    o[11] = hypotf(x, y);
    o[12] = atanf(x);
    o[13] = atan2f(x, y);
    o[14] = sinhf(x);
    o[15] = tanhf(x);
    o[16] = erff(x);
    o[17] = erfcf(x);
    o[18] = expm1f(x);
    o[19] = log1pf(fabsf(x));
    o[20] = asinf(x / (1.0f + fabsf(x)));
    o[21] = s;
    o[22] = c;
    o[23] = tgammaf(fabsf(y) + 0.5f);
}

extern "C" __global__ void functions64(int n, const double* a, const double* b, double* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = a[i], y = b[i];
    double* o = out + (long long)i * 16;
    o[0] = sin(x);
    o[1] = cos(x);
    o[2] = tan(x);
    o[3] = exp(x);
    o[4] = log(fabs(x));
    o[5] = pow(fabs(x), y);
    o[6] = rsqrt(fabs(x));
    o[7] = cbrt(x);
    o[8] = atan2(x, y);
    o[9] = tanh(x);
    o[10] = erf(x);
    o[11] = log2(fabs(x));
    o[12] = exp2(x);
    o[13] = hypot(x, y);
    o[14] = asinh(x);
    o[15] = sinh(x);
}

extern "C" __global__ void approximate32(int n, const float* a, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], t;
    float* o = out + (long long)i * 9;
    o[0] = __sinf(x);
    o[1] = __cosf(x);
    o[2] = __expf(x);
    o[3] = __logf(fabsf(x));
    o[4] = __fdividef(1.5f, x);
    o[5] = __powf(fabsf(x), 1.25f);
    asm("rcp.approx.f32 %0, %1;" : "=f"(t) : "f"(x));
    o[6] = t;
    asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(x));
    o[7] = t;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(t) : "f"(fabsf(x)));
    o[8] = t;
}

// Far arguments take sinf's slow path, with its local array.
extern "C" __global__ void far_sine(int n, const float* a, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = sinf(a[i]);
}

extern "C" __global__ void exponents(int n, const float* a, float* scaled, float* fraction,
                                     int* exponent, double* wide) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int e;
    fraction[i] = frexpf(a[i], &e);
    exponent[i] = e;
    scaled[i] = ldexpf(a[i], 3 - i % 7);
    wide[i] = scalbn((double)a[i], i % 11 - 5) + ilogbf(a[i]);
}
