// Atomics on global and shared memory, and the reductions that return nothing.

extern "C" __global__ void integers(int n, const int* a, int* out, unsigned* uout) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i];
    atomicAdd(&out[0], x);
    atomicSub(&out[1], x);
    atomicMin(&out[2], x);
    atomicMax(&out[3], x);
    atomicAnd(&out[4], x);
    atomicOr(&out[5], x);
    atomicXor(&out[6], x);
    atomicMin(&uout[0], (unsigned)x);
    atomicMax(&uout[1], (unsigned)x);
    atomicInc(&uout[2], 10u);
    atomicDec(&uout[3], 13u);
    atomicAdd(&uout[4], (unsigned)x);
}

extern "C" __global__ void wide(int n, const long long* a, unsigned long long* out,
                                long long* sout, float* f, double* d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long x = (unsigned long long)a[i];
    atomicAdd(&out[0], x);
    atomicMin(&out[1], x);
    atomicMax(&out[2], x);
    atomicAnd(&out[3], x);
    atomicOr(&out[4], x);
    atomicXor(&out[5], x);
    atomicMin(&sout[0], a[i]);
    atomicMax(&sout[1], a[i]);
    atomicAdd(&f[0], (float)(a[i] & 15));
    atomicAdd(&d[0], (double)(a[i] & 1023));
}

// Each thread draws a ticket: the old values are a permutation.
extern "C" __global__ void tickets(int* counter, int* seen, int* exchanged) {
    int ticket = atomicAdd(counter, 1);
    seen[ticket] = blockIdx.x * blockDim.x + threadIdx.x;
    int old = atomicExch(&exchanged[0], ticket + 1);
    exchanged[1 + ticket] = old;
}

extern "C" __global__ void compare_swap(int* lock, float* sum, const float* a, int* wins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (atomicCAS(lock, -1, i) == -1) atomicAdd(wins, 1);
    int* bits = reinterpret_cast<int*>(sum);
    int old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(__int_as_float(assumed) + a[i]));
    } while (assumed != old);
}

extern "C" __global__ void in_shared(int n, const unsigned char* a, int* bins, float* sum,
                                     unsigned long long* most) {
    __shared__ int local[16];
    __shared__ float total;
    __shared__ unsigned long long top;
    int t = threadIdx.x;
    if (t < 16) local[t] = 0;
    if (t == 0) {
        total = 0;
        top = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) {
        int old = atomicAdd(&local[a[i] & 15], 1);
        atomicAdd(&total, 0.5f);
        atomicMax(&top, (unsigned long long)(old + 1) << 32);
    }
    __syncthreads();
    if (t < 16) atomicAdd(&bins[t], local[t]);
    if (t == 0) {
        atomicAdd(sum, total);
        atomicMax(most, top);
    }
}

// The last block to finish adds up what the others left (the guide's threadFenceReduction).
__device__ unsigned finished = 0;

extern "C" __global__ void last_block(int n, const float* a, volatile float* partial, float* out) {
    __shared__ float tile[64];
    __shared__ bool last;
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    tile[t] = i < n ? a[i] : 0;
    __syncthreads();
    for (int d = blockDim.x / 2; d; d >>= 1) {
        if (t < d) tile[t] += tile[t + d];
        __syncthreads();
    }
    if (t == 0) {
        partial[blockIdx.x] = tile[0];
        __threadfence();
        last = atomicInc(&finished, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        float sum = 0;
        for (int b = 0; b < gridDim.x; b++) sum += partial[b];
        *out = sum;
        finished = 0;
    }
}

extern "C" __global__ void halves(unsigned* packed, unsigned short* one, unsigned* old) {
    unsigned pair;
    asm volatile("atom.global.add.noftz.f16x2 %0, [%1], %2;"
                 : "=r"(pair)
                 : "l"(packed), "r"(0x40003c00u)
                 : "memory");
    unsigned short h;
    asm volatile("atom.global.add.noftz.f16 %0, [%1], %2;"
                 : "=h"(h)
                 : "l"(one), "h"((unsigned short)0x3c00)
                 : "memory");
    old[threadIdx.x * 2] = pair;
    old[threadIdx.x * 2 + 1] = h;
}

// Sums in global memory, by a generic address too, and in shared memory; what the first found.
extern "C" __global__ void small_sums(int n, const float* a, const float* b, float* global,
                                      float* found, float* generic, float* shared, float4* four) {
    __shared__ float sums[128];
    __shared__ float more[128];
    int i = threadIdx.x;
    if (i >= n) return;
    sums[i] = more[i] = a[i];
    global[i] = generic[2 * i] = a[i];
    four[i] = make_float4(a[i], a[i], a[i], a[i]);
    found[i] = atomicAdd(&global[i], b[i]);
    float* p = i & 1 ? &generic[2 * i] : &more[i];
    atomicAdd(p, b[i]);
    atomicAdd(&sums[i], b[i]);
    generic[2 * i + 1] = more[i];
    shared[i] = sums[i];
#if __CUDA_ARCH__ >= 900
    atomicAdd(&four[i], make_float4(b[i], 0, -b[i], -0.0f));
#endif
}
