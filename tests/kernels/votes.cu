// Votes, matches and reductions of a warp.

#define ALL 0xffffffffu

extern "C" __global__ void votes(const int* a, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, x = a[i];
    unsigned* o = out + i * 5;
    o[0] = __ballot_sync(ALL, x > 0);
    o[1] = __any_sync(ALL, x > 90);
    o[2] = __all_sync(ALL, x > -90);
    o[3] = __popc(__ballot_sync(ALL, x & 1) & ((1u << (threadIdx.x & 31)) - 1));
    o[4] = __activemask();
}

extern "C" __global__ void divergent(const int* a, unsigned* out) {
    int t = threadIdx.x;
    unsigned mask = __ballot_sync(ALL, t % 3 == 1);
    if (t % 3 == 1) out[t] = __ballot_sync(mask, a[t] > 0);
    else out[t] = __all_sync(~mask, a[t] < 1000) + 10 * __any_sync(~mask, a[t] > 1000);
}

extern "C" __global__ void matches(const int* a, const long long* b, unsigned* out) {
    int t = threadIdx.x, same;
    out[t * 5] = __match_any_sync(ALL, a[t]);
    out[t * 5 + 1] = __match_any_sync(ALL, b[t]);
    out[t * 5 + 2] = __match_all_sync(ALL, a[t], &same);
    out[t * 5 + 3] = same;
    out[t * 5 + 4] = __match_all_sync(ALL, 7, &same) + same;
}

extern "C" __global__ void reductions(const int* a, int* out) {
    int t = threadIdx.x, x = a[t];
    int* o = out + t * 8;
    o[0] = __reduce_add_sync(ALL, x);
    o[1] = __reduce_min_sync(ALL, x);
    o[2] = __reduce_max_sync(ALL, x);
    o[3] = (int)__reduce_min_sync(ALL, (unsigned)x);
    o[4] = (int)__reduce_max_sync(ALL, (unsigned)x);
    o[5] = (int)__reduce_and_sync(ALL, (unsigned)x);
    o[6] = (int)__reduce_or_sync(ALL, (unsigned)x);
    o[7] = (int)__reduce_xor_sync(ALL, (unsigned)x);
}

// Threads of a warp that hold one key elect one of them to add for all.
extern "C" __global__ void aggregated(int n, const int* keys, int* bins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned active = __ballot_sync(ALL, i < n);
    if (i >= n) return;
    unsigned peers = __match_any_sync(active, keys[i]);
    int lane = threadIdx.x & 31;
    if (lane == __ffs(peers) - 1) atomicAdd(&bins[keys[i]], __popc(peers));
}
