// Conversions between integer and floating types, with their rounding and saturation.

extern "C" __global__ void from_float(int n, const float* a, int* i32, unsigned* u32,
                                      long long* i64, unsigned long long* u64, double* f64) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i];
    i32[i * 5 + 0] = (int)x;
    i32[i * 5 + 1] = __float2int_rn(x);
    i32[i * 5 + 2] = __float2int_ru(x);
    i32[i * 5 + 3] = __float2int_rd(x);
    i32[i * 5 + 4] = __float_as_int(x);
    u32[i * 2 + 0] = (unsigned)x;
    u32[i * 2 + 1] = __float2uint_rn(x);
    i64[i * 2 + 0] = (long long)x;
    i64[i * 2 + 1] = __float2ll_rn(x);
    u64[i * 2 + 0] = (unsigned long long)x;
    u64[i * 2 + 1] = __float2ull_ru(x);
    f64[i] = x;
}

extern "C" __global__ void from_double(int n, const double* a, int* i32, long long* i64,
                                       float* f32) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = a[i];
    i32[i * 6 + 0] = (int)x;
    i32[i * 6 + 1] = __double2int_rn(x);
    i32[i * 6 + 2] = (int)__double2uint_ru(x);
    i32[i * 6 + 3] = __double2hiint(x);
    i32[i * 6 + 4] = __double2loint(x);
    i32[i * 6 + 5] = (int)lrint(x);
    i64[i * 4 + 0] = (long long)x;
    i64[i * 4 + 1] = __double2ll_rd(x);
    i64[i * 4 + 2] = (long long)(unsigned long long)x;
    i64[i * 4 + 3] = __double_as_longlong(x);
    f32[i * 4 + 0] = (float)x;
    f32[i * 4 + 1] = __double2float_rz(x);
    f32[i * 4 + 2] = __double2float_ru(x);
    f32[i * 4 + 3] = __double2float_rd(x);
}

extern "C" __global__ void from_integer(int n, const long long* a, float* f32, double* f64) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = a[i];
    f32[i * 8 + 0] = (float)(int)x;
    f32[i * 8 + 1] = (float)(unsigned)x;
    f32[i * 8 + 2] = (float)x;
    f32[i * 8 + 3] = (float)(unsigned long long)x;
    f32[i * 8 + 4] = __int2float_rz((int)x);
    f32[i * 8 + 5] = __ll2float_ru(x);
    f32[i * 8 + 6] = (float)(short)x;
    f32[i * 8 + 7] = (float)(unsigned char)x;
    f64[i * 5 + 0] = (double)(int)x;
    f64[i * 5 + 1] = (double)(unsigned)x;
    f64[i * 5 + 2] = (double)x;
    f64[i * 5 + 3] = (double)(unsigned long long)x;
    f64[i * 5 + 4] = __ll2double_rz(x);
}

extern "C" __global__ void to_narrow(int n, const float* a, const int* b, signed char* i8,
                                     unsigned char* u8, short* i16, unsigned short* u16) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    i8[i * 2] = (signed char)b[i];
    u8[i * 2] = (unsigned char)b[i];
    i16[i * 2] = (short)b[i];
    u16[i * 2] = (unsigned short)b[i];
    int s;
    asm("{ .reg .s8 t; .reg .s32 w; cvt.sat.s8.s32 w, %1; mov.b32 %0, w; }" : "=r"(s) : "r"(b[i]));
    i8[i * 2 + 1] = (signed char)s;
    asm("{ .reg .u32 w; cvt.sat.u8.s32 w, %1; mov.b32 %0, w; }" : "=r"(s) : "r"(b[i]));
    u8[i * 2 + 1] = (unsigned char)s;
    short h;
    unsigned short u;
    asm("cvt.rzi.sat.s16.f32 %0, %1;" : "=h"(h) : "f"(a[i]));
    asm("cvt.rni.sat.u16.f32 %0, %1;" : "=h"(u) : "f"(a[i]));
    i16[i * 2 + 1] = h;
    u16[i * 2 + 1] = u;
}
