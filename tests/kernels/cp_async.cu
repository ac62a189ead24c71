// Asynchronous copies from global to shared memory, with their groups.

__device__ __forceinline__ unsigned at(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copy4(void* to, const void* from, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at(to)), "l"(from), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

extern "C" __global__ void wide_copy(const float* a, float* out) {
    __shared__ __align__(16) float tile[256];
    int t = threadIdx.x;
    copy16(&tile[t * 4], &a[t * 4]);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int i = t; i < 256; i += blockDim.x) out[i] = tile[255 - i];
}

// Past the end nothing is read, and zeros are written.
extern "C" __global__ void padded_copy(int n, const float* a, float* out) {
    __shared__ float tile[64];
    int t = threadIdx.x;
    copy4(&tile[t], t < n ? &a[t] : a, t < n ? 4 : 0);
    commit();
    wait<0>();
    __syncthreads();
    out[t] = tile[63 - t];
}

// The same by a predicate, of what is there or of what is not.
extern "C" __global__ void ignoring_copy(int n, int turned, const float* a, float* out) {
    __shared__ __align__(16) float tile[64];
    int t = threadIdx.x, is_there = 4 * t < n;
    if (turned) {
        asm volatile("{ .reg .pred there; setp.ne.s32 there, %2, 0;\n"
                     "cp.async.cg.shared.global [%0], [%1], 16, !there; }" ::"r"(at(&tile[4 * t])),
                     "l"(a + 4 * t), "r"(is_there)
                     : "memory");
    } else {
        asm volatile("{ .reg .pred missing; setp.eq.s32 missing, %2, 0;\n"
                     "cp.async.cg.shared.global [%0], [%1], 16, missing; }" ::"r"(at(&tile[4 * t])),
                     "l"(a + 4 * t), "r"(is_there)
                     : "memory");
    }
    commit();
    wait<0>();
    __syncthreads();
    for (int i = 4 * t; i < 4 * t + 4; ++i) out[i] = tile[63 - i];
}

// Three stages: two phases are on their way while one is used.
extern "C" __global__ void pipeline(int phases, const float* a, float* out) {
    __shared__ __align__(16) float stage[3][128];
    int t = threadIdx.x;
    float sum = 0;
    for (int p = 0; p < 2; p++) {
        if (p < phases) copy16(&stage[p][t * 4], &a[p * 128 + t * 4]);
        commit();
    }
    for (int p = 0; p < phases; p++) {
        wait<1>();
        __syncthreads();
        if (p + 2 < phases) copy16(&stage[(p + 2) % 3][t * 4], &a[(p + 2) * 128 + t * 4]);
        commit();
        for (int i = 0; i < 4; i++) sum += stage[p % 3][(t * 4 + i + 37) % 128] * (p + 1);
    }
    out[t] = sum;
}
