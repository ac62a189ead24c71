// Integer arithmetic: every operator and intrinsic on 64, 32, 16 and 8 bits.

extern "C" __global__ void signed32(int n, const int* a, const int* b, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i], y = b[i];
    int* o = out + (long long)i * 16;
    o[0] = x + y;
    o[1] = x - y;
    o[2] = x * y;
    o[3] = y ? x / y : 0;
    o[4] = y ? x % y : 0;
    o[5] = x >> (y & 31);
    o[6] = x << (y & 31);
    o[7] = x & y;
    o[8] = x | ~y;
    o[9] = x ^ y;
    o[10] = min(x, y);
    o[11] = max(x, y);
    o[12] = abs(x);
    o[13] = __mulhi(x, y);
    o[14] = x < y ? -x : y;
    o[15] = (x < y) + 2 * (x == y) + 4 * (x >= y) + 8 * !x + 16 * (x != 0 && y > 3);
}

extern "C" __global__ void unsigned32(int n, const unsigned* a, const unsigned* b, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i];
    unsigned* o = out + (long long)i * 16;
    o[0] = y ? x / y : 0u;
    o[1] = y ? x % y : 0u;
    o[2] = x >> (y & 31);
    o[3] = min(x, y);
    o[4] = max(x, y);
    o[5] = __umulhi(x, y);
    o[6] = x < y;
    o[7] = x / 7u;
    o[8] = x % 1000u;
    o[9] = __umul24(x, y);
    o[10] = __uhadd(x, y);
    o[11] = __urhadd(x, y);
    o[12] = __usad(x, y, 5u);
    o[13] = __sad((int)x, (int)y, 5u);
    o[14] = __mul24((int)x, (int)y);
    o[15] = __hadd((int)x, (int)y);
}

extern "C" __global__ void bits32(int n, const unsigned* a, const unsigned* b, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i];
    unsigned* o = out + (long long)i * 16;
    o[0] = __brev(x);
    o[1] = __clz(x);
    o[2] = __popc(x);
    o[3] = __ffs(x);
    o[4] = __byte_perm(x, y, 0x5140);
    o[5] = __byte_perm(x, y, y);
    o[6] = __funnelshift_l(x, y, y);
    o[7] = __funnelshift_r(x, y, y);
    o[8] = __funnelshift_lc(x, y, y & 63);
    o[9] = __funnelshift_rc(x, y, y & 63);
    o[10] = (x << 13) | (x >> 19);
    o[11] = (x >> 5) & 0x3ff;
    o[12] = ((int)(x << 7)) >> 20;
    unsigned r;
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y & 0xff), "r"((y >> 8) & 0xff));
    o[13] = r;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(x), "r"(y), "r"(y & 0xff), "r"((y >> 8) & 0xff));
    o[14] = r;
    asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(r) : "r"(x), "r"(y), "r"(x ^ (y >> 3)));
    o[15] = r;
}

extern "C" __global__ void bits_asm(int n, const unsigned* a, const unsigned* b, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i], r;
    int s;
    unsigned* o = out + (long long)i * 8;
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(s) : "r"(x), "r"(y & 0xff), "r"((y >> 8) & 0xff));
    o[0] = s;
    asm("bfind.u32 %0, %1;" : "=r"(r) : "r"(x));
    o[1] = r;
    asm("bfind.s32 %0, %1;" : "=r"(r) : "r"(x));
    o[2] = r;
    asm("bfind.shiftamt.u32 %0, %1;" : "=r"(r) : "r"(x));
    o[3] = r;
    asm("shl.b32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y & 0x3f));
    o[4] = r;
    asm("shr.s32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y & 0x3f));
    o[5] = r;
    asm("shr.u32 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y & 0x3f));
    o[6] = r;
    asm("fns.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y & 31), "r"((int)(y >> 5 & 7) - 3));
    o[7] = r;
}

extern "C" __global__ void carries(int n, const unsigned* a, const unsigned* b, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i];
    unsigned lo, hi;
    unsigned* o = out + (long long)i * 8;
    asm("add.cc.u32 %0, %2, %3;\n\taddc.u32 %1, %2, %3;" : "=r"(lo), "=r"(hi) : "r"(x), "r"(y));
    o[0] = lo;
    o[1] = hi;
    asm("sub.cc.u32 %0, %2, %3;\n\tsubc.u32 %1, %3, %2;" : "=r"(lo), "=r"(hi) : "r"(x), "r"(y));
    o[2] = lo;
    o[3] = hi;
    asm("mad.lo.cc.u32 %0, %2, %3, %2;\n\tmadc.hi.u32 %1, %2, %3, 0;"
        : "=r"(lo), "=r"(hi)
        : "r"(x), "r"(y));
    o[4] = lo;
    o[5] = hi;
    int s;
    asm("add.sat.s32 %0, %1, %2;" : "=r"(s) : "r"(x), "r"(y));
    o[6] = s;
    asm("sub.sat.s32 %0, %1, %2;" : "=r"(s) : "r"(x), "r"(y));
    o[7] = s;
}

extern "C" __global__ void signed64(int n, const long long* a, const long long* b, long long* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = a[i], y = b[i];
    long long* o = out + (long long)i * 16;
    o[0] = x + y;
    o[1] = x - y;
    o[2] = x * y;
    o[3] = y ? x / y : 0;
    o[4] = y ? x % y : 0;
    o[5] = x >> (y & 63);
    o[6] = (long long)((unsigned long long)x << (y & 63));
    o[7] = (x & y) ^ (x | ~y);
    o[8] = min(x, y);
    o[9] = max(x, y);
    o[10] = llabs(x);
    o[11] = __mul64hi(x, y);
    o[12] = (x < y) + 2 * (x <= y) + 4 * (x == y);
    o[13] = (long long)(int)x * (int)y;
    o[14] = (long long)((unsigned long long)(unsigned)x * (unsigned)y);
    o[15] = x / 10;
}

extern "C" __global__ void unsigned64(int n, const unsigned long long* a,
                                      const unsigned long long* b, unsigned long long* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long x = a[i], y = b[i];
    unsigned long long* o = out + (long long)i * 12;
    o[0] = y ? x / y : 0;
    o[1] = y ? x % y : 0;
    o[2] = x >> (y & 63);
    o[3] = __umul64hi(x, y);
    o[4] = __brevll(x);
    o[5] = __clzll(x);
    o[6] = __popcll(x);
    o[7] = __ffsll(x);
    o[8] = x / 1000000007ull;
    o[9] = min(x, y);
    o[10] = max(x, y);
    o[11] = (x << 17) | (x >> 47);
}

extern "C" __global__ void narrow(int n, const signed char* a, const unsigned char* b,
                                  const short* c, const unsigned short* d, signed char* out8,
                                  short* out16, int* out32) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    signed char x = a[i];
    unsigned char y = b[i];
    short u = c[i];
    unsigned short v = d[i];
    out8[i * 4 + 0] = x + y;
    out8[i * 4 + 1] = x * y;
    out8[i * 4 + 2] = x >> 2;
    out8[i * 4 + 3] = (signed char)(u ^ x);
    out16[i * 4 + 0] = u + v;
    out16[i * 4 + 1] = u * v;
    out16[i * 4 + 2] = (short)(v >> 3) - (short)(u >> 3);
    out16[i * 4 + 3] = u < (short)v ? u : (short)v;
    out32[i * 4 + 0] = x * u + y * v;
    out32[i * 4 + 1] = v ? u / v : 0;
    out32[i * 4 + 2] = y ? x % y : 0;
    out32[i * 4 + 3] = (x < 0) + 2 * (v > 40000) + 4 * (y == 255);
}

extern "C" __global__ void dot4(int n, const int* a, const int* b, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int s, u, h;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(s) : "r"(a[i]), "r"(b[i]), "r"(7));
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(u) : "r"(a[i]), "r"(b[i]), "r"(7));
    asm("dp2a.lo.s32.s32 %0, %1, %2, %3;" : "=r"(h) : "r"(a[i]), "r"(b[i]), "r"(7));
    out[i * 3] = s;
    out[i * 3 + 1] = u;
    out[i * 3 + 2] = h;
}
