// Boxes of arrays of RANK dimensions by tensor maps, by value and in global memory.

typedef unsigned int u32;
typedef unsigned long long u64;

typedef struct alignas(64) CUtensorMap_st {
    u64 opaque[16];
} CUtensorMap;

struct Corner {
    int at[5];
};

#if RANK == 1
#define TENSOR "cp.async.bulk.tensor.1d"
#define REDUCE "cp.reduce.async.bulk.tensor.1d"
#define PREFETCH "cp.async.bulk.prefetch.tensor.1d"
#define COORDINATES "{%2}"
#elif RANK == 2
#define TENSOR "cp.async.bulk.tensor.2d"
#define REDUCE "cp.reduce.async.bulk.tensor.2d"
#define PREFETCH "cp.async.bulk.prefetch.tensor.2d"
#define COORDINATES "{%2, %3}"
#elif RANK == 3
#define TENSOR "cp.async.bulk.tensor.3d"
#define REDUCE "cp.reduce.async.bulk.tensor.3d"
#define PREFETCH "cp.async.bulk.prefetch.tensor.3d"
#define COORDINATES "{%2, %3, %4}"
#elif RANK == 4
#define TENSOR "cp.async.bulk.tensor.4d"
#define REDUCE "cp.reduce.async.bulk.tensor.4d"
#define PREFETCH "cp.async.bulk.prefetch.tensor.4d"
#define COORDINATES "{%2, %3, %4, %5}"
#else
#define TENSOR "cp.async.bulk.tensor.5d"
#define REDUCE "cp.reduce.async.bulk.tensor.5d"
#define PREFETCH "cp.async.bulk.prefetch.tensor.5d"
#define COORDINATES "{%2, %3, %4, %5, %6}"
#endif

#ifndef OPERATION
#define OPERATION "add"
#endif

__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }

extern __shared__ __align__(1024) unsigned char box[];

__device__ void load_box(const CUtensorMap* map, Corner c, int bytes, unsigned char* out) {
    __shared__ __align__(8) u64 barrier;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n"
                     "fence.mbarrier_init.release.cluster;" ::"r"(at(&barrier))
                     : "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(&barrier)),
                     "r"(bytes)
                     : "memory");
        asm volatile(PREFETCH ".L2.global.tile [%0, " COORDINATES "];" ::"l"(map), "r"(0),
                     "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4])
                     : "memory");
        asm volatile(TENSOR ".shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                            "[%1], [%0, " COORDINATES "], [%7];" ::"l"(map),
                     "r"(at(box)), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]),
                     "r"(c.at[4]), "r"(at(&barrier))
                     : "memory");
    }
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again; }" ::"r"(at(&barrier))
                 : "memory");
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = box[i];
}

extern "C" __global__ void load(const __grid_constant__ CUtensorMap map, Corner c, int bytes,
                                unsigned char* out) {
    load_box(&map, c, bytes, out);
}

extern "C" __global__ void load_at(const CUtensorMap* map, Corner c, int bytes,
                                   unsigned char* out) {
    load_box(map, c, bytes, out);
}

__device__ void fill(const unsigned char* in, int bytes) {
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) box[i] = in[i];
#ifndef UNFENCED
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncthreads();
}

__device__ void flush() {
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

extern "C" __global__ void store(const __grid_constant__ CUtensorMap map, Corner c, int bytes,
                                 const unsigned char* in) {
    fill(in, bytes);
    if (threadIdx.x == 0) {
        asm volatile(TENSOR ".global.shared::cta.tile.bulk_group "
                            "[%0, " COORDINATES "], [%1];" ::"l"(&map),
                     "r"(at(box)), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]),
                     "r"(c.at[4])
                     : "memory");
        flush();
    }
}

extern "C" __global__ void reduce(const __grid_constant__ CUtensorMap map, Corner c, int bytes,
                                  const unsigned char* in) {
    fill(in, bytes);
    if (threadIdx.x == 0) {
        asm volatile(REDUCE ".global.shared::cta." OPERATION ".tile.bulk_group "
                            "[%0, " COORDINATES "], [%1];" ::"l"(&map),
                     "r"(at(box)), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]),
                     "r"(c.at[4])
                     : "memory");
        flush();
    }
}
