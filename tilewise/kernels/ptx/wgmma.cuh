// Products by the tensor cores, a warpgroup at a time (PTX ISA 9.7.15, wgmma; compute capability
// 9.0a).
//
// Macros: INPUT (float16 or bfloat16), BLOCK_N (columns of D: a multiple of 16 up to 256), A_K_MAJOR
// and B_K_MAJOR (1 where k is the contiguous dimension of the operand, 0 for MN-major).
#pragma once
#include "../ptx/convert.cuh"

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit_group() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> __device__ inline void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// The compiler does not know that wgmma writes ``d`` until the wait: behind this, it reads no
// register of it that it had read before.
__device__ inline void wgmma_accumulator_fence(float& d) { asm volatile("" : "+f"(d)::"memory"); }

// 9.7.15.5.1: the descriptor of a matrix in shared memory, in rows of WIDTH bytes that are swizzled
// over their width: 128 or 64. Groups of 8 rows follow one another; ``leading`` is the leading
// byte offset.
template <int WIDTH> __device__ inline u64 wgmma_descriptor(u32 address, u32 leading) {
    constexpr u64 STRIDE = 8 * WIDTH, SWIZZLE = WIDTH == 128 ? 1 : 2;
    return (u64)((address & 0x3FFFF) >> 4) | (u64)(leading >> 4) << 16 | STRIDE >> 4 << 32 |
           SWIZZLE << 62;
}

// The instruction names BLOCK_N / 2 registers of D, %3 and up: %0 to %2 are A, B and whether to
// accumulate. For each N, REGISTERS_N lists them in the text, and OPERANDS_N as operands.
// clang-format off
#define WGMMA_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define REGISTERS_16 "%3,%4,%5,%6,%7,%8,%9,%10"
#define REGISTERS_32 REGISTERS_16 ",%11,%12,%13,%14,%15,%16,%17,%18"
#define REGISTERS_48 REGISTERS_32 ",%19,%20,%21,%22,%23,%24,%25,%26"
#define REGISTERS_64 REGISTERS_48 ",%27,%28,%29,%30,%31,%32,%33,%34"
#define REGISTERS_80 REGISTERS_64 ",%35,%36,%37,%38,%39,%40,%41,%42"
#define REGISTERS_96 REGISTERS_80 ",%43,%44,%45,%46,%47,%48,%49,%50"
#define REGISTERS_112 REGISTERS_96 ",%51,%52,%53,%54,%55,%56,%57,%58"
#define REGISTERS_128 REGISTERS_112 ",%59,%60,%61,%62,%63,%64,%65,%66"
#define REGISTERS_144 REGISTERS_128 ",%67,%68,%69,%70,%71,%72,%73,%74"
#define REGISTERS_160 REGISTERS_144 ",%75,%76,%77,%78,%79,%80,%81,%82"
#define REGISTERS_176 REGISTERS_160 ",%83,%84,%85,%86,%87,%88,%89,%90"
#define REGISTERS_192 REGISTERS_176 ",%91,%92,%93,%94,%95,%96,%97,%98"
#define REGISTERS_208 REGISTERS_192 ",%99,%100,%101,%102,%103,%104,%105,%106"
#define REGISTERS_224 REGISTERS_208 ",%107,%108,%109,%110,%111,%112,%113,%114"
#define REGISTERS_240 REGISTERS_224 ",%115,%116,%117,%118,%119,%120,%121,%122"
#define REGISTERS_256 REGISTERS_240 ",%123,%124,%125,%126,%127,%128,%129,%130"
#define OPERANDS_16 WGMMA_D8(0)
#define OPERANDS_32 OPERANDS_16, WGMMA_D8(8)
#define OPERANDS_48 OPERANDS_32, WGMMA_D8(16)
#define OPERANDS_64 OPERANDS_48, WGMMA_D8(24)
#define OPERANDS_80 OPERANDS_64, WGMMA_D8(32)
#define OPERANDS_96 OPERANDS_80, WGMMA_D8(40)
#define OPERANDS_112 OPERANDS_96, WGMMA_D8(48)
#define OPERANDS_128 OPERANDS_112, WGMMA_D8(56)
#define OPERANDS_144 OPERANDS_128, WGMMA_D8(64)
#define OPERANDS_160 OPERANDS_144, WGMMA_D8(72)
#define OPERANDS_176 OPERANDS_160, WGMMA_D8(80)
#define OPERANDS_192 OPERANDS_176, WGMMA_D8(88)
#define OPERANDS_208 OPERANDS_192, WGMMA_D8(96)
#define OPERANDS_224 OPERANDS_208, WGMMA_D8(104)
#define OPERANDS_240 OPERANDS_224, WGMMA_D8(112)
#define OPERANDS_256 OPERANDS_240, WGMMA_D8(120)
// clang-format on
#define WGMMA_PASTED(prefix, n) prefix##n
#define WGMMA_REGISTERS(n) WGMMA_PASTED(REGISTERS_, n)
#define WGMMA_OPERANDS(n) WGMMA_PASTED(OPERANDS_, n)
#define WGMMA_QUOTED(x) #x
#define WGMMA_NUMBER(x) WGMMA_QUOTED(x)
#if A_K_MAJOR
#define WGMMA_TRANSPOSE_A "0"
#else
#define WGMMA_TRANSPOSE_A "1"
#endif
#if B_K_MAJOR
#define WGMMA_TRANSPOSE_B "0"
#else
#define WGMMA_TRANSPOSE_B "1"
#endif

// 9.7.15.5.2, wgmma.mma_async: d = a * b for 64 x BLOCK_N x 16, plus d unless ``accumulate`` is 0.
// ``a`` and ``b`` are descriptors. Inputs stand among the outputs, so that their numbers do not
// depend on BLOCK_N.
__device__ inline void wgmma(float (&d)[BLOCK_N / 2], u64 a, u64 b, int accumulate) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n" WGMMA_NUMBER(BLOCK_N) "k16.f32." PTX_TYPE(INPUT) "." PTX_TYPE(INPUT)
                 " {" WGMMA_REGISTERS(BLOCK_N) "}, %0, %1, p, 1, 1, " WGMMA_TRANSPOSE_A ", " WGMMA_TRANSPOSE_B "; }"
                 : "+l"(a), "+l"(b), "+r"(accumulate), WGMMA_OPERANDS(BLOCK_N));
}
