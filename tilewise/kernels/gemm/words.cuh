// 16 bytes that do not begin where aligned words do.

// The 16 bytes that begin ``shift`` bytes, an even number, behind the beginning of ``low``.
__device__ inline uint4 joined(uint4 low, uint4 high, int shift) {
    unsigned words[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    #pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = shift & 8 ? words[i + 2] : words[i];
    #pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = shift & 4 ? words[i + 1] : words[i];
    #pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], 8 * (shift & 2));
    return uint4{words[0], words[1], words[2], words[3]};
}
