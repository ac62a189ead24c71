// Each lane gives the place of a row of 16 bytes in shared memory, and its warp loads the COUNT
// matrices of 8 such rows by ldmatrix, or stores them there by stmatrix (STORES): any pattern of
// banks, one a warp. The rows of matrix i are at the places that lanes 8 i to 8 i + 7 give.
// TRANS: of the transposed matrices.

#define LANES 32
#if COUNT == 1
#define NUMBER "x1"
#define REGISTERS "{%0}"
#define ADDRESS "[%1]"
#define LISTED(kind) kind(r[0])
#elif COUNT == 2
#define NUMBER "x2"
#define REGISTERS "{%0, %1}"
#define ADDRESS "[%2]"
#define LISTED(kind) kind(r[0]), kind(r[1])
#else
#define NUMBER "x4"
#define REGISTERS "{%0, %1, %2, %3}"
#define ADDRESS "[%4]"
#define LISTED(kind) kind(r[0]), kind(r[1]), kind(r[2]), kind(r[3])
#endif
#define OUTPUT(x) "=r"(x)
#define INPUT(x) "r"(x)
#if TRANS
#define LAYOUT ".trans"
#else
#define LAYOUT ""
#endif

struct __align__(16) row { unsigned words[4]; };

// A block is a warp. Word w of row p is 4 p + w at first.
extern "C" __global__ void matrix_rows(int rows, const int* at, unsigned* out) {
    extern __shared__ row places[];
    unsigned lane = threadIdx.x;
    for (unsigned p = lane; p < rows; p += LANES) places[p] = row{{4 * p, 4 * p + 1, 4 * p + 2, 4 * p + 3}};
    __syncthreads();
    int mine = at[blockIdx.x * LANES + lane];
    unsigned address = (unsigned)__cvta_generic_to_shared(places + mine), r[COUNT];
#if STORES
    // Of a matrix that is not transposed, a lane has word lane % 4 of row lane / 4: each row
    // becomes four times its place and the number of the word, and the half above is 1.
    for (int i = 0; i < COUNT; ++i) {
        unsigned place = __shfl_sync(0xffffffffu, mine, 8 * i + lane / 4);
        r[i] = TRANS ? 0x00010001u : 0x00010000u + 4 * place + lane % 4;
    }
    asm volatile("stmatrix.sync.aligned.m8n8." NUMBER LAYOUT ".shared.b16 [%0], "
#if COUNT == 1
                 "{%1};"
#elif COUNT == 2
                 "{%1, %2};"
#else
                 "{%1, %2, %3, %4};"
#endif
                 ::"r"(address), LISTED(INPUT) : "memory");
    __syncthreads();
    const unsigned* words = (const unsigned*)places;
    for (unsigned i = lane; i < 4 * rows; i += LANES) out[blockIdx.x * 4 * rows + i] = words[i];
#else
    asm volatile("ldmatrix.sync.aligned.m8n8." NUMBER LAYOUT ".shared.b16 " REGISTERS ", " ADDRESS ";"
                 : LISTED(OUTPUT) : "r"(address) : "memory");
    for (int i = 0; i < COUNT; ++i) out[(blockIdx.x * COUNT + i) * LANES + lane] = r[i];
#endif
}
