// Barriers in shared memory that count arrivals and bytes. FAULT plants one fault in ``ring``.

#ifndef FAULT
#define FAULT 0
#endif
#ifndef STAGES
#define STAGES 2
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ void init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ u64 arrive_many(u32 barrier, u32 count) {
    u64 state;
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1], %2;"
                 : "=l"(state)
                 : "r"(barrier), "r"(count)
                 : "memory");
    return state;
}

__device__ void wait(u32 barrier, u32 parity) {
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(barrier), "r"(parity)
                 : "memory");
}

__device__ bool has_ended(u32 barrier, u64 state) {
    u32 ended;
    asm volatile("{ .reg .pred done;\n"
                 "mbarrier.test_wait.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done; }"
                 : "=r"(ended)
                 : "r"(barrier), "l"(state)
                 : "memory");
    return ended;
}

// The first warp fills the stages of a ring, the others read them and add up.
extern "C" __global__ void ring(int phases, const int* a, int* out) {
    __shared__ int stages[STAGES][32];
    __shared__ __align__(16) u64 full[STAGES + 1], empty[STAGES];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, readers = blockDim.x - 32;
    u32 full_at = at(full), empty_at = at(empty);
    if (FAULT == 1) full_at += 4;
    if (FAULT == 2) full_at += 1 << 20;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            if (FAULT != 3) init(full_at + 8 * i, FAULT == 4 ? 33 : FAULT == 5 ? 31 : 32);
            init(empty_at + 8 * i, FAULT == 6 ? 0 : readers);
        }
    }
    if (FAULT != 7) __syncthreads();
    a += blockIdx.x * phases * 32;
    int stage = 0, sum = 0;
    u32 parity = 0;
    for (int p = 0; p < phases; ++p) {
        if (warp == 0) {
            if (FAULT != 8) wait(empty_at + 8 * stage, parity ^ 1);
            stages[stage][lane] = a[p * 32 + lane];
            arrive(full_at + 8 * stage);
        } else {
            if (FAULT != 9) wait(full_at + 8 * stage, parity);
            sum += (p + warp) * stages[stage][31 - lane];
            if (FAULT != 10 || warp != 1) arrive(empty_at + 8 * stage);
        }
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    if (warp > 0) out[(blockIdx.x * (readers / 32) + warp - 1) * 32 + lane] = sum;
}

// All threads exchange numbers, phase after phase, and poll by the state that their arrival gave.
extern "C" __global__ void states(int phases, const int* a, int* out) {
    __shared__ int x[2][128];
    __shared__ u64 barrier;
    int t = threadIdx.x, n = blockDim.x;
    if (t == 0) init(at(&barrier), 3 * n);
    __syncthreads();
    int mine = a[blockIdx.x * n + t];
    for (int p = 0; p < phases; ++p) {
        x[p % 2][t] = mine;
        u64 state = arrive_many(at(&barrier), 3);
        while (!has_ended(at(&barrier), state)) {
        }
        mine += 3 * x[p % 2][(t + 1 + p) % n];
    }
    out[blockIdx.x * n + t] = mine;
}

// Thread t takes part in t + 1 phases and then drops out: the others don't wait for it.
extern "C" __global__ void dropping(int* out) {
    __shared__ int counts[64];
    __shared__ u64 barrier;
    int t = threadIdx.x, n = blockDim.x;
    counts[t] = 0;
    if (t == 0) init(at(&barrier), n);
    __syncthreads();
    for (int p = 0; p < t; ++p) {
        atomicAdd(&counts[p], 1);
        arrive(at(&barrier));
        wait(at(&barrier), p % 2);
    }
    atomicAdd(&counts[t], 1);
    asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];" ::"r"(at(&barrier)) : "memory");
    __syncthreads();
    out[t] = counts[t];
}

// A phase waits for the bytes that it was told to expect, too: some of them come before.
extern "C" __global__ void bytes(int* out) {
    __shared__ int x;
    __shared__ u64 barrier;
    u32 b = at(&barrier), t = threadIdx.x;
    if (t == 0) init(b, 2);
    __syncthreads();
    if (t == 0) {
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 5;" ::"r"(b) : "memory");
        arrive(b);
    } else if (t == 32) {
        asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 12;" ::"r"(b)
                     : "memory");
        x = 7;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 20;" ::"r"(b) : "memory");
    } else if (t == 64) {
        asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 13;" ::"r"(b)
                     : "memory");
    }
    wait(b, 0);
    out[t] = x;
}

// One thread sees a phase begin and end; the barrier's address is generic.
extern "C" __global__ void alone(u32 count, int* out) {
    __shared__ u64 barriers[3];
    u64* barrier = barriers + threadIdx.x;
    asm volatile("mbarrier.init.b64 [%0], %1;" ::"l"(barrier), "r"(count) : "memory");
    u32 b = at(barrier);
    int* o = out + 3 * threadIdx.x;
    u64 state = 0;
    for (u32 i = 0; i < count; ++i) {
        o[0] += i > 0 && has_ended(b, state);
        asm volatile("mbarrier.arrive.b64 %0, [%1];" : "=l"(state) : "l"(barrier) : "memory");
    }
    o[1] = has_ended(b, state);
    asm volatile("mbarrier.inval.b64 [%0];\nmbarrier.init.b64 [%0], %1;" ::"l"(barrier), "r"(count)
                 : "memory");
    state = arrive_many(b, count);
    o[2] = has_ended(b, state);
}

// Copies that arrive at a barrier.
extern "C" __global__ void copies(const int* a, int* out) {
    __shared__ __align__(16) int x[128];
    __shared__ u64 barrier;
    int t = threadIdx.x;
    if (t == 0) init(at(&barrier), 32);
    __syncthreads();
    if (t < 32) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\n"
                     "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%2];" ::"r"(at(x + 4 * t)),
                     "l"(a + 4 * t), "r"(at(&barrier))
                     : "memory");
    }
    wait(at(&barrier), 0);
    out[t] = x[127 - t];
}

// The first ARRIVALS lanes arrive twice at ``turn``, and the first one in between at ``go``. The second warp waits for
// ``go``, and then for the second phase of ``turn`` alone.
#ifndef ARRIVALS
#define ARRIVALS 1
#endif
extern "C" __global__ void second_phase(int* out) {
    __shared__ __align__(16) u64 turn[1], go[1];
    if (threadIdx.x == 0) {
        init(at(turn), ARRIVALS);
        init(at(go), 1);
    }
    __syncthreads();
    if (threadIdx.x < ARRIVALS) arrive(at(turn));
    if (threadIdx.x == 0) arrive(at(go));
    if (threadIdx.x < ARRIVALS) arrive(at(turn));
    if (threadIdx.x >= 32) {
        wait(at(go), 0);
        wait(at(turn), 1);
        out[threadIdx.x - 32] = 1;
    }
}
