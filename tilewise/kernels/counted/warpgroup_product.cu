// Products of a warpgroup (wgmma m64nNk16 of fp16): B in shared memory, A there too or in registers
// (A_SHARED). All elements are ones, so that the operands' descriptors may name any layout: `a` and
// `b` are the descriptors, but for the address of shared memory. A_TURNED, B_TURNED: the operand's
// other dimension than k is the contiguous one.

#define THREADS 128
typedef unsigned long long u64;
typedef unsigned u32;

// The instruction names N / 2 registers of D, %6 and up: %0 to %3 are A's registers, %4 and %5
// the descriptors of A and B.
// clang-format off
#define REGISTERS_8 "%6,%7,%8,%9"
#define REGISTERS_16 REGISTERS_8 ",%10,%11,%12,%13"
#define REGISTERS_32 REGISTERS_16 ",%14,%15,%16,%17,%18,%19,%20,%21"
#define REGISTERS_64 REGISTERS_32 ",%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37"
#define REGISTERS_128 REGISTERS_64 ",%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69"
#define REGISTERS_256 REGISTERS_128 ",%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127,%128,%129,%130,%131,%132,%133"
#define SUMS(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define OPERANDS_8 SUMS(0)
#define OPERANDS_16 OPERANDS_8, SUMS(4)
#define OPERANDS_32 OPERANDS_16, SUMS(8), SUMS(12)
#define OPERANDS_64 OPERANDS_32, SUMS(16), SUMS(20), SUMS(24), SUMS(28)
#define OPERANDS_128 OPERANDS_64, SUMS(32), SUMS(36), SUMS(40), SUMS(44), SUMS(48), SUMS(52), SUMS(56), SUMS(60)
#define OPERANDS_256 OPERANDS_128, SUMS(64), SUMS(68), SUMS(72), SUMS(76), SUMS(80), SUMS(84), SUMS(88), SUMS(92), SUMS(96), SUMS(100), SUMS(104), SUMS(108), SUMS(112), SUMS(116), SUMS(120), SUMS(124)
// clang-format on
#define PASTED(prefix, n) prefix##n
#define REGISTERS(n) PASTED(REGISTERS_, n)
#define OPERANDS(n) PASTED(OPERANDS_, n)
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#if A_SHARED
#define A_TEXT "%4"
#define TURNED ", " TEXT(A_TURNED) ", " TEXT(B_TURNED)
#else
#define A_TEXT "{%0,%1,%2,%3}"
#define TURNED ", " TEXT(B_TURNED)
#endif

struct __align__(16) piece { u32 words[4]; };

// A block is a warpgroup. Dynamic shared memory: `bytes`. Each thread writes the sum of what it
// holds of D.
extern "C" __global__ void warpgroup_product(int bytes, u64 a, u64 b, float* out) {
    extern __shared__ __align__(1024) piece tiles[];
    const u32 ONES = 0x3c003c00u;
    for (int i = threadIdx.x; i < bytes / 16; i += THREADS) tiles[i] = piece{{ONES, ONES, ONES, ONES}};
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    u64 at = ((u32)__cvta_generic_to_shared(tiles) & 0x3ffff) >> 4;
    a += at;
    b += at;
    float d[N / 2];
    for (int i = 0; i < N / 2; ++i) d[i] = 0;
    u32 a0 = ONES, a1 = ONES, a2 = ONES, a3 = ONES;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n" TEXT(N) "k16.f32.f16.f16 {" REGISTERS(N) "}, "
                 A_TEXT ", %5, 1, 1, 1" TURNED ";"
                 : "+r"(a0), "+r"(a1), "+r"(a2), "+r"(a3), "+l"(a), "+l"(b), OPERANDS(N));
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    float sum = 0;
    for (int i = 0; i < N / 2; ++i) sum += d[i];
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}
