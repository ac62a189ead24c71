// 128-bit integers.

extern "C" __global__ void wide128(int n, const unsigned long long* a, const unsigned long long* b,
                                   unsigned long long* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned __int128 x = a[i], y = b[i];
    unsigned __int128 product = x * y;
    unsigned __int128 sum = (product << 3) + (x << 64 | y);
    unsigned __int128 difference = product - (y << 64 | x);
    __int128 negative = -(__int128)product >> 5;
    unsigned __int128 quotient = y ? sum / (y + 1) : 0;
    unsigned long long* o = out + (long long)i * 12;
    o[0] = (unsigned long long)product;
    o[1] = (unsigned long long)(product >> 64);
    o[2] = (unsigned long long)sum;
    o[3] = (unsigned long long)(sum >> 64);
    o[4] = (unsigned long long)difference;
    o[5] = (unsigned long long)(difference >> 64);
    o[6] = (unsigned long long)negative;
    o[7] = (unsigned long long)(negative >> 64);
    o[8] = product < sum;
    o[9] = (unsigned long long)quotient;
    o[10] = (unsigned long long)(quotient >> 64);
    o[11] = (unsigned long long)(sum % (y + 1));
}

using u128 = unsigned __int128;
using s128 = __int128;

// Every operator on two 128-bit integers, signed and unsigned; zero where C++ has no answer.
extern "C" __global__ void operators128(int n, const u128* a, const u128* b, u128* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u128 x = a[i], y = b[i], *o = out + (long long)i * 20;
    s128 sx = x, sy = y, least = (u128)1 << 127;
    int shift = (int)(y & 127);
    bool is_open = sy == 0 || (sy == -1 && sx == least);
    o[0] = x + y;
    o[1] = x - y;
    o[2] = x * y;
    o[3] = y ? x / y : 0;
    o[4] = y ? x % y : 0;
    o[5] = is_open ? 0 : sx / sy;
    o[6] = is_open ? 0 : sx % sy;
    o[7] = x << shift;
    o[8] = x >> shift;
    o[9] = sx >> shift;
    o[10] = (sx < sy) + 2 * (x < y) + 4 * (x == y) + 8 * (sx <= sy);
    o[11] = sx / 2;
    o[12] = x / 10;
    o[13] = sx % 1000;
    // Wide products of 64 bits, and a quotient of one.
    long long s = (long long)x, t = (long long)y;
    o[14] = (s128)s * t;
    o[15] = (u128)(unsigned long long)s * (unsigned long long)t;
    o[16] = t ? (s128)2 * s / t : 0;
    o[17] = (s128)2 * s / 2;
    o[18] = -x;
    o[19] = (s128)(int)s * t >> (shift & 63);
}

// The same numbers for all threads.
extern "C" __global__ void uniform128(long long s, long long t, u128* out) {
    out[0] = (s128)t * s / t;
    out[1] = (s128)2 * s / t;
    out[2] = (s128)2 * s / 2;
    out[3] = (s128)s * s / t;
}
