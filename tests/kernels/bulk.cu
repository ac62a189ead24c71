// Bulk copies as they are: shared memory comes from and goes to arrays byte by byte.

typedef unsigned int u32;
typedef unsigned long long u64;

struct alignas(64) TensorMap {
    char bytes[128];
};

__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ void expect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(barrier)),
                 "r"(bytes)
                 : "memory");
}

__device__ void start(u64* barrier) {
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n"
                     "fence.mbarrier_init.release.cluster;" ::"r"(at(barrier))
                     : "memory");
    }
    __syncthreads();
}

__device__ void wait(u64* barrier) {
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again; }" ::"r"(at(barrier))
                 : "memory");
}

__device__ void flush() {
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

__device__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

__device__ u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ u32 in_block(u32 address, u32 rank) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

extern __shared__ __align__(1024) unsigned char box[];

// The box at (x, y, z), of ``bytes``, as it comes to ``offset`` in shared memory.
extern "C" __global__ void load(const __grid_constant__ TensorMap map, int x, int y, int z,
                                int bytes, int offset, unsigned char* out) {
    __shared__ __align__(8) u64 barrier;
    start(&barrier);
    if (threadIdx.x == 0) {
        expect(&barrier, bytes);
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(at(box + offset)),
                     "l"(&map), "r"(x), "r"(y), "r"(z), "r"(at(&barrier))
                     : "memory");
    }
    wait(&barrier);
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = box[offset + i];
}

// A box of which the first ``bytes`` are ``in``.
extern "C" __global__ void store(const __grid_constant__ TensorMap map, int x, int y, int z,
                                 int bytes, int offset, const unsigned char* in) {
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) box[offset + i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group "
                     "[%0, {%1, %2, %3}], [%4];" ::"l"(&map),
                     "r"(x), "r"(y), "r"(z), "r"(at(box + offset))
                     : "memory");
        flush();
    }
}

// In clusters of four, each block loads a box and gives it to those that it has a bit for in its
// byte of ``to``: box r is of the cluster's matrix, from row 8 r on, and lies r boxes into shared
// memory. A block's byte of ``copies`` is how many it gets.
extern "C" __global__ void __cluster_dims__(4, 1, 1)
share(const __grid_constant__ TensorMap map, u32 to, u32 copies, int bytes, unsigned char* out) {
    __shared__ __align__(8) u64 barrier;
    u32 rank = cluster_rank();
    for (int i = threadIdx.x; i < 4 * bytes; i += blockDim.x) box[i] = 255;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    start(&barrier);
    if (threadIdx.x == 0) expect(&barrier, (copies >> 8 * rank & 255) * bytes);
    sync_cluster();
    if (threadIdx.x == 0) {
        unsigned short blocks = to >> 8 * rank & 255;
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(
                         at(box + rank * bytes)),
                     "l"(&map), "r"(0), "r"(8 * rank), "r"(blockIdx.x / 4), "r"(at(&barrier)),
                     "h"(blocks)
                     : "memory");
    }
    wait(&barrier);
    for (int i = threadIdx.x; i < 4 * bytes; i += blockDim.x) {
        out[blockIdx.x * 4 * bytes + i] = box[i];
    }
    sync_cluster();
}

// Bytes from global to shared memory, on to the other block of a cluster of two, and out again.
extern "C" __global__ void __cluster_dims__(2, 1, 1)
pass(const unsigned char* in, unsigned char* out, int bytes) {
    __shared__ __align__(8) u64 came, passed;
    unsigned char* there = box + bytes;
    start(&came);
    start(&passed);
    sync_cluster();
    if (threadIdx.x == 0) {
        expect(&came, bytes);
        expect(&passed, bytes);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1], %2, [%3];" ::"r"(at(box)),
                     "l"(in + blockIdx.x * bytes), "r"(bytes), "r"(at(&came))
                     : "memory");
        wait(&came);
        u32 other = cluster_rank() ^ 1;
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                     "[%0], [%1], %2, [%3];" ::"r"(in_block(at(there), other)),
                     "r"(at(box)), "r"(bytes), "r"(in_block(at(&passed), other))
                     : "memory");
        wait(&passed);
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                         out + blockIdx.x * bytes),
                     "r"(at(there)), "r"(bytes)
                     : "memory");
        flush();
    }
    sync_cluster();
}

// To the L2 cache, and nowhere else.
extern "C" __global__ void bring_near(const char* from, unsigned size) {
    if (threadIdx.x) return;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(size) : "memory");
}
