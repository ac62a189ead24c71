// PTX that only Hopper has, one instruction a function. The sections are those of the PTX ISA.

typedef unsigned long long u64;
typedef unsigned int u32;

// A tensor map as the driver encodes it (cuTensorMapEncodeTiled); a kernel parameter by value.
struct alignas(64) TensorMap {
    char bytes[128];
};

__device__ inline u32 shared_address(const void* p) {  // 9.7.9.20: cvta
    return (u32)__cvta_generic_to_shared(p);
}

// Barriers in shared memory (9.7.13.15: mbarrier). A barrier's phase turns when all arrivals and
// all announced bytes are there; the parity waited for is that of the phase that ends.

__device__ inline void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ inline void barrier_fence_init() {  // 9.7.13.4: fence.mbarrier_init
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ inline void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The same barrier of another block of the cluster (9.7.9.23: mapa).
__device__ inline void barrier_arrive_at(u32 barrier, u32 block) {
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
                 "r"(block)
                 : "memory");
}

__device__ inline void barrier_wait(u32 barrier, u32 parity) {
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// Bulk tensor copies (9.7.9.27.1.2: cp.async.bulk.tensor).

__device__ inline void tma_load(u32 to, const TensorMap& map, int x, int y, int z, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier)
                 : "memory");
}

// To the same place in every block of the cluster that ``blocks`` has a bit for.
__device__ inline void tma_load_multicast(u32 to, const TensorMap& map, int x, int y, int z,
                                          u32 barrier, unsigned short blocks) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
                 "l"(&map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks)
                 : "memory");
}

__device__ inline void tma_store(const TensorMap& map, u32 from, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group "
                 "[%0, {%1, %2, %3}], [%4];" ::"l"(&map),
                 "r"(x), "r"(y), "r"(z), "r"(from)
                 : "memory");
}

__device__ inline void tma_store_commit() {  // 9.7.9.25.3: cp.async.bulk.commit_group
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the sources of all but the last ``N`` groups may be written again.
template <int N> __device__ inline void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

__device__ inline void tma_prefetch(const TensorMap& map) {  // 9.7.9.15: prefetch
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ inline void fence_async() {  // 9.7.13.4: what threads stored, the copies see
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Clusters (9.7.13.3: barrier.cluster; 10.14: %cluster_ctarank).

__device__ inline void cluster_sync() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

__device__ inline u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// A barrier of some of the block's warps (9.7.13.1: barrier).
__device__ inline void named_barrier(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Registers between warpgroups (9.7.20.5: setmaxnreg).
template <int N> __device__ inline void registers_more() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ inline void registers_fewer() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// Warpgroup products (9.7.15: wgmma).

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> __device__ inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// 9.7.15.5.1: a matrix in shared memory, swizzled by 128 bytes. Offsets in bytes.
__device__ inline u64 wgmma_matrix(u32 address, u32 leading, u32 stride) {
    return (u64)((address & 0x3FFFF) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 |
           1ull << 62;
}

#define R4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R16(d, i) R4(d, i), R4(d, i + 4), R4(d, i + 8), R4(d, i + 12)
#define R64(d, i) R16(d, i), R16(d, i + 16), R16(d, i + 32), R16(d, i + 48)

#define WGMMA_64(TYPE)                                                                            \
    "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"                                                    \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {"                              \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                      \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"                           \
    " %32, %33, p, 1, 1, %35, %36; }"
#define WGMMA_128(TYPE)                                                                           \
    "{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"                                                    \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {"                             \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                      \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                            \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                            \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"                           \
    " %64, %65, p, 1, 1, %67, %68; }"
#define WGMMA_256(TYPE)                                                                           \
    "{ .reg .pred p; setp.ne.b32 p, %130, 0;\n"                                                   \
    "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {"                             \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                      \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                            \
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                            \
    "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"                            \
    "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                            \
    "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"                            \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"                \
    "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127},"           \
    " %128, %129, p, 1, 1, %131, %132; }"

// d += a * b for 64 x N x 16 (9.7.15.5.2); d = a * b where ``accumulate`` is 0. An operand whose
// k is not its contiguous dimension is transposed (TA, TB).
template <int N, int TA, int TB>
__device__ inline void wgmma(float (&d)[N / 2], u64 a, u64 b, int accumulate) {
    if constexpr (N == 64) {
        asm volatile(WGMMA_64(HALF)
                     : R16(d, 0), R16(d, 16)
                     : "l"(a), "l"(b), "r"(accumulate), "n"(TA), "n"(TB));
    } else if constexpr (N == 128) {
        asm volatile(WGMMA_128(HALF)
                     : R64(d, 0)
                     : "l"(a), "l"(b), "r"(accumulate), "n"(TA), "n"(TB));
    } else {
        static_assert(N == 256, "N is 64, 128 or 256");
        asm volatile(WGMMA_256(HALF)
                     : R64(d, 0), R64(d, 64)
                     : "l"(a), "l"(b), "r"(accumulate), "n"(TA), "n"(TB));
    }
}

// 9.7.9.17: two floats to two 16-bit numbers, the first in the lower half.
__device__ inline u32 pack_halves(float low, float high) {
    u32 pair;
    asm("cvt.rn." HALF "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// 9.7.15.7 (stmatrix): four 8 x 8 matrices of 16-bit numbers from a warp's registers to shared
// memory; each lane gives the address of one row.
__device__ inline void store_matrices(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}
