// PTX that only Hopper has, one instruction a function. The sections are those of the PTX ISA.
#include "bulk.cuh"

// Copies of 16 bytes (9.7.9.25.3: cp.async): zeros if ``is_missing``, which then is not read.
__device__ inline void copy_piece(u32 to, u64 from, bool is_missing) {
    asm volatile("{ .reg .pred missing;\n"
                 "setp.ne.b32 missing, %2, 0;\n"
                 "cp.async.cg.shared.global [%0], [%1], 16, missing; }" ::"r"(to),
                 "l"(from), "r"((int)is_missing)
                 : "memory");
}

// The same of which the first ``bytes`` are read, and the others are zeros.
__device__ inline void copy_some(u32 to, u64 from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ inline void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all but the last ``N`` groups of this thread have arrived.
template <int N> __device__ inline void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
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

// Another block's shared memory, at the address that is ``address`` in its own (9.7.9.23: mapa).
__device__ inline u32 cluster_address(u32 address, u32 block) {
    u32 there;
    // Volatile, so that it is not computed again and again to spare a register.
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
    return there;
}

__device__ inline void cluster_store(u32 address, const float* x) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x[0]),
                 "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}

// Shared memory by its address there (9.7.9.8: ld; 9.7.9.11: st).

__device__ inline void shared_store(u32 address, u16 x) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(x) : "memory");
}

__device__ inline void shared_store(u32 address, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

__device__ inline void shared_store(u32 address, float x, float y) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

__device__ inline void shared_store(u32 address, uint4 x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x.x), "r"(x.y),
                 "r"(x.z), "r"(x.w)
                 : "memory");
}

__device__ inline unsigned short shared_half(u32 address) {
    unsigned short x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(address) : "memory");
    return x;
}

__device__ inline float shared_float(u32 address) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}

__device__ inline uint4 shared_word(u32 address) {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

__device__ inline float4 shared_load(u32 address) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

// Overlap with the kernels before and after in the stream (9.7.13.13: griddepcontrol). Nothing that
// they write or read may be touched before the wait, which is for all of them to have ended.

__device__ inline void wait_for_kernels_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ inline void let_next_kernel_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
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

// The registers of D: BLOCK_N / 2 floats, in groups of 8 for 16 columns.
// In an instruction's text they are numbered from 3 on: the descriptors of A and B, and whether to
// accumulate, come first.
#define R4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R8(d, i) R4(d, i), R4(d, i + 4)
#if BLOCK_N >= 16
#define TEXT0 "%3,%4,%5,%6,%7,%8,%9,%10"
#define LIST0(d) , R8(d, 0)
#endif
#if BLOCK_N >= 32
#define TEXT1 ",%11,%12,%13,%14,%15,%16,%17,%18"
#define LIST1(d) , R8(d, 8)
#else
#define TEXT1 ""
#define LIST1(d)
#endif
#if BLOCK_N >= 48
#define TEXT2 ",%19,%20,%21,%22,%23,%24,%25,%26"
#define LIST2(d) , R8(d, 16)
#else
#define TEXT2 ""
#define LIST2(d)
#endif
#if BLOCK_N >= 64
#define TEXT3 ",%27,%28,%29,%30,%31,%32,%33,%34"
#define LIST3(d) , R8(d, 24)
#else
#define TEXT3 ""
#define LIST3(d)
#endif
#if BLOCK_N >= 80
#define TEXT4 ",%35,%36,%37,%38,%39,%40,%41,%42"
#define LIST4(d) , R8(d, 32)
#else
#define TEXT4 ""
#define LIST4(d)
#endif
#if BLOCK_N >= 96
#define TEXT5 ",%43,%44,%45,%46,%47,%48,%49,%50"
#define LIST5(d) , R8(d, 40)
#else
#define TEXT5 ""
#define LIST5(d)
#endif
#if BLOCK_N >= 112
#define TEXT6 ",%51,%52,%53,%54,%55,%56,%57,%58"
#define LIST6(d) , R8(d, 48)
#else
#define TEXT6 ""
#define LIST6(d)
#endif
#if BLOCK_N >= 128
#define TEXT7 ",%59,%60,%61,%62,%63,%64,%65,%66"
#define LIST7(d) , R8(d, 56)
#else
#define TEXT7 ""
#define LIST7(d)
#endif
#if BLOCK_N >= 144
#define TEXT8 ",%67,%68,%69,%70,%71,%72,%73,%74"
#define LIST8(d) , R8(d, 64)
#else
#define TEXT8 ""
#define LIST8(d)
#endif
#if BLOCK_N >= 160
#define TEXT9 ",%75,%76,%77,%78,%79,%80,%81,%82"
#define LIST9(d) , R8(d, 72)
#else
#define TEXT9 ""
#define LIST9(d)
#endif
#if BLOCK_N >= 176
#define TEXT10 ",%83,%84,%85,%86,%87,%88,%89,%90"
#define LIST10(d) , R8(d, 80)
#else
#define TEXT10 ""
#define LIST10(d)
#endif
#if BLOCK_N >= 192
#define TEXT11 ",%91,%92,%93,%94,%95,%96,%97,%98"
#define LIST11(d) , R8(d, 88)
#else
#define TEXT11 ""
#define LIST11(d)
#endif
#if BLOCK_N >= 208
#define TEXT12 ",%99,%100,%101,%102,%103,%104,%105,%106"
#define LIST12(d) , R8(d, 96)
#else
#define TEXT12 ""
#define LIST12(d)
#endif
#if BLOCK_N >= 224
#define TEXT13 ",%107,%108,%109,%110,%111,%112,%113,%114"
#define LIST13(d) , R8(d, 104)
#else
#define TEXT13 ""
#define LIST13(d)
#endif
#if BLOCK_N >= 240
#define TEXT14 ",%115,%116,%117,%118,%119,%120,%121,%122"
#define LIST14(d) , R8(d, 112)
#else
#define TEXT14 ""
#define LIST14(d)
#endif
#if BLOCK_N >= 256
#define TEXT15 ",%123,%124,%125,%126,%127,%128,%129,%130"
#define LIST15(d) , R8(d, 120)
#else
#define TEXT15 ""
#define LIST15(d)
#endif
#define TEXT                                                                                      \
    TEXT0 TEXT1 TEXT2 TEXT3 TEXT4 TEXT5 TEXT6 TEXT7 TEXT8 TEXT9 TEXT10 TEXT11 TEXT12 TEXT13 TEXT14 \
        TEXT15
#define LIST(d)                                                                                   \
    LIST0(d) LIST1(d) LIST2(d) LIST3(d) LIST4(d) LIST5(d) LIST6(d) LIST7(d) LIST8(d) LIST9(d)     \
        LIST10(d) LIST11(d) LIST12(d) LIST13(d) LIST14(d) LIST15(d)
#define WORD(x) #x
#define NUMBER(x) WORD(x)
#if A_BY_K
#define TRANSPOSE_A "0"
#else
#define TRANSPOSE_A "1"
#endif
#if B_BY_K
#define TRANSPOSE_B "0"
#else
#define TRANSPOSE_B "1"
#endif

// d += a * b for 64 x BLOCK_N x 16 (9.7.15.5.2); d = a * b where ``accumulate`` is 0. An operand
// whose k is not its contiguous dimension is transposed.
__device__ inline void wgmma(float (&d)[BLOCK_N / 2], u64 a, u64 b, int accumulate) {
    // Inputs that stand among the outputs, so that their numbers do not depend on BLOCK_N.
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n" NUMBER(BLOCK_N) "k16.f32." HALF "." HALF
                 " {" TEXT "}, %0, %1, p, 1, 1, " TRANSPOSE_A ", " TRANSPOSE_B "; }"
                 : "+l"(a), "+l"(b), "+r"(accumulate) LIST(d));
}

// 9.7.9.17: two floats to two 16-bit numbers, the first in the lower half.
__device__ inline u32 pack_halves(float low, float high) {
    u32 pair;
    asm("cvt.rn." HALF "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// 9.7.15.7 (stmatrix): four 8 x 8 matrices of 16-bit numbers from a warp's registers to shared
// memory; each lane gives the address of one row, or, transposed, column.
template <bool TRANSPOSED> __device__ inline void store_matrices(u32 address, const u32 (&x)[4]) {
    if (TRANSPOSED) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         address),
                     "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                     : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         address),
                     "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                     : "memory");
    }
}
