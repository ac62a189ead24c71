// Realignment in registers: 16 bytes that are not 16-byte aligned, from the aligned ones around
// them.

// The 16 bytes that begin ``shift`` bytes, an even number below 16, after the beginning of ``low``.
__device__ inline uint4 realigned(uint4 low, uint4 high, int shift) {
    unsigned words[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    #pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = shift & 8 ? words[i + 2] : words[i];
    #pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = shift & 4 ? words[i + 1] : words[i];
    #pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], 8 * (shift & 2));
    return uint4{words[0], words[1], words[2], words[3]};
}

// The 16 bytes that end ``back`` elements of 2 bytes, less than 8, before the end of ``last``.
__device__ inline uint4 aligned_before(uint4 before, uint4 last, int back) {
    unsigned x[] = {before.x, before.y, before.z, before.w, last.x, last.y, last.z, last.w};
    #pragma unroll
    for (int i = 7; i >= 2; --i) x[i] = back & 4 ? x[i - 2] : x[i];
    #pragma unroll
    for (int i = 7; i >= 3; --i) x[i] = back & 2 ? x[i - 1] : x[i];
    #pragma unroll
    for (int i = 7; i >= 4; --i) x[i] = __funnelshift_l(x[i - 1], x[i], 16 * (back & 1));
    return make_uint4(x[4], x[5], x[6], x[7]);
}
