// fp16 and bf16, one and two a register, by inline PTX on unsigned short and unsigned.

#define BINARY(op, r, x, y) asm(op " %0, %1, %2;" : "=h"(r) : "h"(x), "h"(y))
#define PACKED(op, r, x, y) asm(op " %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y))

extern "C" __global__ void half_arithmetic(int n, const unsigned short* a, const unsigned short* b,
                                           const unsigned short* c, unsigned short* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned short x = a[i], y = b[i], z = c[i], r;
    unsigned short* o = out + (long long)i * 10;
    BINARY("add.rn.f16", r, x, y);
    o[0] = r;
    BINARY("sub.rn.f16", r, x, y);
    o[1] = r;
    BINARY("mul.rn.f16", r, x, y);
    o[2] = r;
    asm("fma.rn.f16 %0, %1, %2, %3;" : "=h"(r) : "h"(x), "h"(y), "h"(z));
    o[3] = r;
    BINARY("min.f16", r, x, y);
    o[4] = r;
    BINARY("max.f16", r, x, y);
    o[5] = r;
    asm("neg.f16 %0, %1;" : "=h"(r) : "h"(x));
    o[6] = r;
    asm("abs.f16 %0, %1;" : "=h"(r) : "h"(x));
    o[7] = r;
    asm("{ .reg .pred p; setp.lt.f16 p, %1, %2; selp.b16 %0, %1, %2, p; }"
        : "=h"(r)
        : "h"(x), "h"(y));
    o[8] = r;
    BINARY("add.sat.f16", r, x, y);
    o[9] = r;
}

extern "C" __global__ void bfloat_arithmetic(int n, const unsigned short* a,
                                             const unsigned short* b, const unsigned short* c,
                                             unsigned short* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned short x = a[i], y = b[i], z = c[i], r;
    unsigned short* o = out + (long long)i * 8;
    BINARY("add.rn.bf16", r, x, y);
    o[0] = r;
    BINARY("sub.rn.bf16", r, x, y);
    o[1] = r;
    BINARY("mul.rn.bf16", r, x, y);
    o[2] = r;
    asm("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(r) : "h"(x), "h"(y), "h"(z));
    o[3] = r;
    BINARY("min.bf16", r, x, y);
    o[4] = r;
    BINARY("max.bf16", r, x, y);
    o[5] = r;
    asm("neg.bf16 %0, %1;" : "=h"(r) : "h"(x));
    o[6] = r;
    asm("abs.bf16 %0, %1;" : "=h"(r) : "h"(x));
    o[7] = r;
}

extern "C" __global__ void packed_arithmetic(int n, const unsigned* a, const unsigned* b,
                                             const unsigned* c, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i], z = c[i], r;
    unsigned* o = out + (long long)i * 6;
    PACKED("add.rn.f16x2", r, x, y);
    o[0] = r;
    PACKED("mul.rn.f16x2", r, x, y);
    o[1] = r;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z));
    o[2] = r;
    PACKED("add.rn.bf16x2", r, x, y);
    o[3] = r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z));
    o[4] = r;
    PACKED("max.f16x2", r, x, y);
    o[5] = r;
}

extern "C" __global__ void half_conversions(int n, const float* a, unsigned short* out,
                                            float* back, unsigned* packed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], f;
    unsigned short h;
    unsigned short* o = out + (long long)i * 8;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    o[0] = h;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    back[i * 2] = f;
    asm("cvt.rz.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    o[1] = h;
    asm("cvt.rm.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    o[2] = h;
    asm("cvt.rp.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    o[3] = h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    o[4] = h;
    asm("cvt.f32.bf16 %0, %1;" : "=f"(f) : "h"(h));
    back[i * 2 + 1] = f;
    asm("cvt.rz.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    o[5] = h;
    asm("cvt.rn.f16.s32 %0, %1;" : "=h"(h) : "r"(i * 37 - 2000));
    o[6] = h;
    asm("cvt.rn.relu.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    o[7] = h;
    unsigned p;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(x), "f"(x * 0.5f));
    packed[i * 2] = p;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(x), "f"(x * 0.5f));
    packed[i * 2 + 1] = p;
}
