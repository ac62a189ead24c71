// Floating point whose every bit IEEE fixes, for float and double.

extern "C" __global__ void exact32(int n, const float* a, const float* b, const float* c,
                                   float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i], z = c[i];
    float* o = out + (long long)i * 24;
    o[0] = __fadd_rn(x, y);
    o[1] = __fsub_rn(x, y);
    o[2] = __fmul_rn(x, y);
    o[3] = x / y;
    o[4] = sqrtf(x);
    o[5] = fmaf(x, y, z);
    o[6] = fminf(x, y);
    o[7] = fmaxf(x, y);
    o[8] = fabsf(x);
    o[9] = -x;
    o[10] = floorf(x);
    o[11] = ceilf(x);
    o[12] = truncf(x);
    o[13] = rintf(x);
    o[14] = roundf(x);
    o[15] = copysignf(x, y);
    o[16] = __frcp_rn(x);
    o[17] = x * y + z;
    o[18] = x < y ? x : z;
    o[19] = (float)((x == y) + 2 * (x <= y) + 4 * (x != y) + 8 * (x >= y) + 16 * !(x < y) +
                    32 * (isnan(x) != 0) + 64 * (isinf(y) != 0) + 128 * (isfinite(z) != 0) +
                    256 * (signbit(x) != 0));
    o[20] = __saturatef(x);
    o[21] = fdimf(x, y);
    o[22] = nearbyintf(x);
    o[23] = fmodf(x, y);
}

extern "C" __global__ void rounded32(int n, const float* a, const float* b, const float* c,
                                     float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i], z = c[i];
    float* o = out + (long long)i * 16;
    o[0] = __fadd_rz(x, y);
    o[1] = __fadd_ru(x, y);
    o[2] = __fadd_rd(x, y);
    o[3] = __fmul_rz(x, y);
    o[4] = __fmul_ru(x, y);
    o[5] = __fmul_rd(x, y);
    o[6] = __fmaf_rz(x, y, z);
    o[7] = __fmaf_ru(x, y, z);
    o[8] = __fmaf_rd(x, y, z);
    o[9] = __fdiv_rz(x, y);
    o[10] = __fdiv_ru(x, y);
    o[11] = __fdiv_rd(x, y);
    o[12] = __fsqrt_rz(x);
    o[13] = __fsqrt_ru(x);
    o[14] = __fsqrt_rd(x);
    o[15] = __fsub_rz(x, y);
}

extern "C" __global__ void exact64(int n, const double* a, const double* b, const double* c,
                                   double* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = a[i], y = b[i], z = c[i];
    double* o = out + (long long)i * 24;
    o[0] = __dadd_rn(x, y);
    o[1] = __dsub_rn(x, y);
    o[2] = __dmul_rn(x, y);
    o[3] = x / y;
    o[4] = sqrt(x);
    o[5] = fma(x, y, z);
    o[6] = fmin(x, y);
    o[7] = fmax(x, y);
    o[8] = fabs(x);
    o[9] = -x;
    o[10] = floor(x);
    o[11] = ceil(x);
    o[12] = trunc(x);
    o[13] = rint(x);
    o[14] = round(x);
    o[15] = copysign(x, y);
    o[16] = __drcp_rn(x);
    o[17] = x * y + z;
    o[18] = x < y ? x : z;
    o[19] = (double)((x == y) + 2 * (x <= y) + 4 * (x != y) + 8 * (x >= y) + 16 * !(x < y) +
                     32 * (isnan(x) != 0) + 64 * (isinf(y) != 0) + 128 * (isfinite(z) != 0) +
                     256 * (signbit(x) != 0));
    o[20] = __dadd_rz(x, y);
    o[21] = __dmul_ru(x, y);
    o[22] = __fma_rd(x, y, z);
    o[23] = fmod(x, y);
}

extern "C" __global__ void saturate(int n, const float* a, const float* b, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i], r;
    float* o = out + (long long)i * 6;
    asm("add.sat.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    o[0] = r;
    asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(x), "f"(y), "f"(0.25f));
    o[1] = r;
    asm("add.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    o[2] = r;
    asm("mul.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    o[3] = r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    o[4] = r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
    o[5] = r;
}
