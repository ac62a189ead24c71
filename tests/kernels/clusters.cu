// Clusters: their numbers, barriers, and each other's shared memory. FAULT plants a fault in ``pass``.

#ifndef FAULT
#define FAULT 0
#endif
#ifndef X
#define X 2
#endif
#ifndef Y
#define Y 1
#endif
#ifndef Z
#define Z 1
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

#define SPECIAL(name)                                            \
    [] {                                                         \
        u32 x;                                                   \
        asm volatile("mov.u32 %0, %%" name ";" : "=r"(x));       \
        return x;                                                \
    }()

__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ u32 there(u32 address, u32 rank) {
    u32 x;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(x) : "r"(address), "r"(rank));
    return x;
}

__device__ void sync() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

extern "C" __global__ void __cluster_dims__(X, Y, Z) numbers(u32* out) {
    u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    u32* o = out + 14 * block;
    o[0] = SPECIAL("cluster_ctaid.x");
    o[1] = SPECIAL("cluster_ctaid.y");
    o[2] = SPECIAL("cluster_ctaid.z");
    o[3] = SPECIAL("clusterid.x");
    o[4] = SPECIAL("clusterid.y");
    o[5] = SPECIAL("clusterid.z");
    o[6] = SPECIAL("cluster_nctaid.x");
    o[7] = SPECIAL("cluster_nctaid.y");
    o[8] = SPECIAL("cluster_nctaid.z");
    o[9] = SPECIAL("nclusterid.x");
    o[10] = SPECIAL("nclusterid.y");
    o[11] = SPECIAL("nclusterid.z");
    o[12] = SPECIAL("cluster_ctarank");
    o[13] = SPECIAL("cluster_nctarank");
}

// Each block gives its numbers to the next of its cluster, which gives them on, all the way around.
extern "C" __global__ void __cluster_dims__(X, Y, Z) pass(int times, const int* a, int* out) {
    __shared__ int x[2][64];
    u32 t = threadIdx.x, rank = SPECIAL("cluster_ctarank"), size = SPECIAL("cluster_nctarank");
    u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    x[0][t] = a[block * 64 + t];
    if (FAULT == 1 && t < 32) return;
    if (FAULT == 2 && t < 32) asm volatile("bar.sync 1;" ::: "memory");
    if (FAULT == 3) asm volatile("barrier.cluster.wait;" ::: "memory");
    int now = 0;
    for (; now < times; ++now) {
        if (FAULT != 4 || now == 0) sync();
        u32 next = FAULT == 5 ? size : (rank + 1) % size;
        asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(there(at(&x[(now + 1) % 2][t]), next)),
                     "r"(x[now % 2][t])
                     : "memory");
    }
    if (FAULT != 6) sync();
    out[block * 64 + t] = x[now % 2][t];
}

// The blocks of a cluster read one another's numbers through generic addresses.
extern "C" __global__ void __cluster_dims__(X, Y, Z) look(const int* a, int* out) {
    __shared__ int x[64];
    u32 t = threadIdx.x, size = SPECIAL("cluster_nctarank");
    u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    x[t] = a[block * 64 + t];
    sync();
    int sum = 0;
    for (u32 r = 0; r < size; ++r) {
        u64 p;
        u32 whose;
        asm volatile("mapa.u64 %0, %1, %2;" : "=l"(p) : "l"(&x[63 - t]), "r"(r));
        asm volatile("getctarank.u64 %0, %1;" : "=r"(whose) : "l"(p));
        sum += (r + 1) * *(volatile int*)p + 1000 * (whose == r);
    }
    out[block * 64 + t] = sum;
    // Threads that end do not keep the others waiting.
    __syncthreads();
    if (t >= 32) return;
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// All blocks of a cluster count in the first one's shared memory, and tell its barrier.
extern "C" __global__ void __cluster_dims__(X, Y, Z) count(const int* a, int* out) {
    __shared__ int counts[8];
    __shared__ u64 barrier;
    u32 t = threadIdx.x, rank = SPECIAL("cluster_ctarank"), size = SPECIAL("cluster_nctarank");
    u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    if (t < 8) counts[t] = 0;
    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n"
                     "fence.mbarrier_init.release.cluster;" ::"r"(at(&barrier)), "r"(64 * size)
                     : "memory");
    }
    sync();
    asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], 1;" ::"r"(
                     there(at(&counts[a[block * 64 + t]]), 0))
                 : "memory");
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                     there(at(&barrier), 0))
                 : "memory");
    if (rank > 0) return;
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again; }" ::"r"(at(&barrier))
                 : "memory");
    if (t < 8) out[block * 8 + t] = counts[t];
}

// The address of a variable in each block of the cluster, as every block finds it, and whose it is.
extern "C" __global__ void __cluster_dims__(X, Y, Z) addresses(u32* out) {
    __shared__ int x[4];
    u32 rank = SPECIAL("cluster_ctarank"), size = SPECIAL("cluster_nctarank");
    u32 own = at(&x[1]), r = threadIdx.x;
    u32* o = out + 4 * (rank * size + r);
    o[0] = own;
    o[1] = there(own, r);
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(o[2]) : "r"(o[1]));
    u64 generic;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(generic) : "l"(&x[1]), "r"(r));
    o[3] = (u32)__cvta_generic_to_shared((void*)generic) - o[1];
}
