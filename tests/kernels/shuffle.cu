// Warp shuffles: the four modes, sub-widths, 64-bit values, and what is built of them.

#define ALL 0xffffffffu

extern "C" __global__ void modes(const int* a, int* out) {
    int t = threadIdx.x, x = a[t];
    int* o = out + t * 10;
    o[0] = __shfl_sync(ALL, x, 5);
    o[1] = __shfl_sync(ALL, x, t * 3 + 1);
    o[2] = __shfl_up_sync(ALL, x, 1);
    o[3] = __shfl_up_sync(ALL, x, 7);
    o[4] = __shfl_down_sync(ALL, x, 2);
    o[5] = __shfl_xor_sync(ALL, x, 9);
    o[6] = __shfl_sync(ALL, x, 11, 8);
    o[7] = __shfl_up_sync(ALL, x, 3, 16);
    o[8] = __shfl_down_sync(ALL, x, 3, 4);
    o[9] = __shfl_xor_sync(ALL, x, 5, 8);
}

extern "C" __global__ void wide(const double* a, const long long* b, const float* c, double* out_a,
                                long long* out_b, float* out_c) {
    int t = threadIdx.x;
    out_a[t] = __shfl_xor_sync(ALL, a[t], 3);
    out_b[t] = __shfl_down_sync(ALL, b[t], 1);
    out_c[t] = __shfl_up_sync(ALL, c[t], 4);
}

extern "C" __global__ void warp_sum(int n, const float* a, float* out) {
    float x = 0;
    for (int i = threadIdx.x; i < n; i += 32) x += a[i];
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(ALL, x, d);
    out[threadIdx.x] = x;
}

extern "C" __global__ void warp_scan(const int* a, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    int x = a[i];
    for (int d = 1; d < 32; d <<= 1) {
        int y = __shfl_up_sync(ALL, x, d);
        if (lane >= d) x += y;
    }
    out[i] = x;
}

// Only a part of the warp takes part.
extern "C" __global__ void partial(const int* a, int* out) {
    int t = threadIdx.x;
    if (t < 12) {
        int x = __shfl_sync(0xfffu, a[t], t < 8 ? t ^ 4 : t);
        out[t] = t < 8 ? x : a[t] * 2;
    } else {
        out[t] = __shfl_sync(~0xfffu, a[t], 20);
    }
}

extern "C" __global__ void predicate(const int* a, int* out) {
    int t = threadIdx.x, r, inside;
    asm volatile(
        "{ .reg .pred p; shfl.sync.down.b32 %0|p, %2, 9, 0x1f, 0xffffffff; selp.s32 %1, 1, 0, p; }"
        : "=r"(r), "=r"(inside)
        : "r"(a[t]));
    out[t] = inside ? r : -1;
}
