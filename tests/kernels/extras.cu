// What people write besides: copies of structures, unions, bit fields, lambdas, hints, locks.

struct Padded {
    char tag;
    double value;
    short last;
};

struct Packed {
    unsigned low : 5;
    int middle : 11;
    unsigned high : 16;
};

union Word {
    float number;
    unsigned bits;
    unsigned char bytes[4];
};

// Whole structures with holes between their members, through shared and local memory.
extern "C" __global__ void padded_copies(int n, const int* pick, Padded* out) {
    __shared__ Padded tile[32];
    Padded mine[3];
    int t = threadIdx.x;
    Padded p;
    p.tag = (char)t;
    p.value = t * 0.5;
    p.last = (short)-t;
    tile[t] = p;
    __syncthreads();
    for (int i = 0; i < 3; i++) mine[i] = tile[(t + i) % 32];
    Padded q = mine[pick[t] % 3];
    __syncthreads();
    tile[t] = q;
    if (t < n) out[t] = q;
}

__device__ __noinline__ Padded swap_ends(Padded p) {
    short s = p.last;
    p.last = p.tag;
    p.tag = (char)s;
    return p;
}

extern "C" __global__ void padded_arguments(const Padded* a, Padded* out) {
    int t = threadIdx.x;
    out[t] = swap_ends(a[t]);
}

extern "C" __global__ void bit_fields(const int* a, int* out) {
    int t = threadIdx.x;
    Packed p;
    p.low = a[t];
    p.middle = a[t] >> 3;
    p.high = a[t] * 7;
    out[t] = p.low + p.middle * 3 - (int)p.high;
}

extern "C" __global__ void unions(const float* a, unsigned* out) {
    int t = threadIdx.x;
    Word w;
    w.number = a[t];
    w.bytes[t & 3] ^= 0x40;
    out[t] = w.bits;
}

template <typename F>
__device__ int apply(F f, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += f(i);
    return sum;
}

extern "C" __global__ void lambdas(const int* a, int* out) {
    int t = threadIdx.x, scale = a[t];
    out[t] = apply([=](int i) { return i * scale + t; }, 5);
}

extern "C" __global__ void __launch_bounds__(64) hints(const float4* __restrict__ a, float4* out,
                                                       unsigned* times) {
    int t = threadIdx.x;
    __builtin_assume(t < 64);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(a + t));
    float4 v = __ldcs(a + t), w = __ldcg(a + t), x;
    asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "l"(a + t));
    if (__builtin_expect(v.x > 1e30f, 0)) __nanosleep(100);
    v.x += w.x + x.w;
    __stcs(out + t, v);
    asm volatile("st.global.cg.u32 [%0], %1;" ::"l"(times + t), "r"(t) : "memory");
}

extern "C" __global__ void block_copies(const int* a, int* out) {
    int buffer[16];
    int t = threadIdx.x;
    memset(buffer, 0xff, sizeof buffer);
    memcpy(buffer + (a[t] & 7), a + t, 2 * sizeof(int));
    for (int i = 0; i < 16; i++) out[t * 16 + i] = buffer[i];
}

// Threads of one warp compete for a lock: the one that holds it must be let run.
extern "C" __global__ void spin_lock(int* lock, int* count, int* order) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            int ticket = *(volatile int*)count;
            *(volatile int*)count = ticket + 1;
            order[ticket] = blockIdx.x * blockDim.x + threadIdx.x;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

// Blocks compete for a lock, all threads of a block meeting at a barrier between two attempts.
extern "C" __global__ void block_lock(int* lock, int* count, int* order) {
    __shared__ int taken;
    do {
        if (threadIdx.x == 0) taken = atomicCAS(lock, 0, 1);
        __syncthreads();
        int got = taken;
        __syncthreads();
        if (got == 0) break;
    } while (true);
    int ticket = *(volatile int*)count;
    __syncthreads();
    if (threadIdx.x == 0) {
        order[ticket] = blockIdx.x;
        *(volatile int*)count = ticket + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

// One warp waits in a loop for what another one of its block sets.
extern "C" __global__ void wait_for_flag(int* flag, int* out) {
    int t = threadIdx.x;
    if (t < 32) {
        while (atomicAdd(flag, 0) == 0) {}
        out[t] = atomicAdd(flag, 0);
    } else if (t == 40) {
        atomicExch(flag, 7);
    }
}

extern "C" __global__ void scopes(int* a, unsigned long long* b, unsigned short* c) {
    atomicAdd_block(&a[0], 1);
    atomicAdd_system(&a[1], 2);
    atomicMax_block(&a[2], (int)threadIdx.x);
    atomicCAS(&b[0], (unsigned long long)threadIdx.x, (unsigned long long)threadIdx.x + 1);
    unsigned short old = *(volatile unsigned short*)c, seen;
    do {
        seen = old;
        old = atomicCAS(c, seen, (unsigned short)(seen + 3));
    } while (old != seen);
}

typedef int (*Binary)(int, int);
__device__ __noinline__ int plus(int x, int y) { return x + y; }
__device__ __noinline__ int minus(int x, int y) { return x - y; }
__device__ __noinline__ int times(int x, int y) { return x * y; }
__constant__ Binary operations[3] = {plus, minus, times};

extern "C" __global__ void constant_pointers(const int* a, int* out) {
    int t = threadIdx.x;
    out[t] = operations[a[t] % 3](a[t], t) + operations[t % 3](t, a[t]);
}

// Deep, and not the same for all threads: local arrays in every frame.
__device__ __noinline__ int walk(int depth, int seed, const int* above) {
    int here[4];
    for (int i = 0; i < 4; i++) here[i] = seed + i + (above ? above[(seed + i) & 3] : 0);
    if (depth == 0) return here[seed & 3];
    return walk(depth - 1, here[depth & 3] & 0xff, here) + here[(seed + 1) & 3];
}

extern "C" __global__ void frames(int* out) {
    int t = threadIdx.x;
    out[t] = walk(t % 6, t, nullptr);
}

extern "C" __global__ void vector_atomics(float2* a, float4* b) {
    atomicAdd(a, make_float2(1, 2));
    atomicAdd(b, make_float4(1, 2, 3, 4));
}

// Enough cases side by side for a table of branches.
extern "C" __global__ void many_cases(int rounds, const int* a, int* out) {
    int t = threadIdx.x, x = a[t], r = t;
    for (int i = 0; i < rounds; i++) {
        switch ((x + i) % 16) {
            case 0: r += out[t]; break;
            case 1: r ^= 0x1234; out[t] = r; break;
            case 2: r = __brev(r); break;
            case 3: r *= 17; break;
            case 4: out[t] = r - 4; break;
            case 5: r = r / 3 + 5; break;
            case 6: r -= out[t] * 2; break;
            case 7: r = r % 1001; break;
            case 8: r <<= 1; out[t] ^= r; break;
            case 9: r = ~r; break;
            case 10: r = abs(r); break;
            case 11: r = max(r, 77); break;
            case 12: r = min(r, 99999); break;
            case 13: out[t] = i; break;
            case 14: r += 14; break;
            default: r -= 15;
        }
    }
    out[t] = r;
}

struct Slot {
    double value;
    int key;
};

// A hole of its own instruction, in shared memory, local memory and a new array.
extern "C" __global__ void holes(const int* pick, Slot* between, Slot* out) {
    __shared__ Slot tile[32];
    Slot mine[4];
    int t = threadIdx.x;
    for (int i = 0; i < 4; i++) {
        mine[i].value = t + i;
        mine[i].key = t * i;
    }
    Slot s;
    s.value = mine[pick[t]].value;
    s.key = mine[pick[t]].key;
    tile[t] = s;
    __syncthreads();
    between[t].value = tile[t ^ 1].value;
    between[t].key = tile[t ^ 1].key;
    out[t] = tile[t ^ 1];
    out[t + 32] = between[t];
    out[t + 64] = mine[pick[t]];
}
