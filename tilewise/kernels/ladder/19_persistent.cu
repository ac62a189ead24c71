// Idea: blocks stay and take tile after tile: the next one's loads begin while this one is multiplied and stored.
// Cost: shared memory of its own for C. Two blocks, a cluster, load half of B's tile each for both (multicast).
// Next: the kernel of matmul also divides k where tiles are too few, and has tiles for every shape.

#ifndef BFLOAT16
#define BFLOAT16 0  // 1 for matrices of bfloat16, 0 for float16
#endif
#ifndef BLOCK_M  // of C, a block's tile; BLOCK_K is how deep it is along k: the 128 bytes that TMA swizzles
#define BLOCK_M 128
#define BLOCK_N 256
#define BLOCK_K 64
#define WARP_M 16  // a warp's tile: a quarter of its warpgroup's
#define WARP_N 256
#endif
#ifndef STAGES
#define STAGES 4  // of tiles in shared memory
#endif
#ifndef LOADERS
#define LOADERS 128  // threads of the warpgroup that loads
#endif
#ifndef GROUP
#define GROUP 8  // rows of tiles whose clusters run together
#endif
#if BFLOAT16
#define TYPE "bf16"
#else
#define TYPE "f16"
#endif
#define CLUSTER 2  // blocks, one below the other: their tiles are one that the cluster takes
#define CONSUMERS (BLOCK_M / (4 * WARP_M))  // warpgroups that multiply
#define THREADS (LOADERS + 128 * CONSUMERS)
#define LOADER_REGISTERS 56  // of each thread
#define CONSUMER_REGISTERS 224

typedef unsigned short half_t;

// How TMA finds boxes of a matrix, as the driver encodes it. A's box is BLOCK_M x 64, and B's BLOCK_K x 64.
struct __align__(64) TensorMap { char bytes[128]; };

// A stage of the ring: rows of 128 bytes, whose 16-byte pieces are swizzled. Those of A are its rows, along k;
// those of B are 64 columns of its rows, one box of them beside the other.
struct Stage { half_t a[BLOCK_M][64], b[BLOCK_N / 64][BLOCK_K][64]; };
static_assert(BLOCK_K == 64 && WARP_M == 16 && WARP_N == BLOCK_N && BLOCK_N == 256, "the shape of wgmma");

// Where in such a row a column is: piece i of row r is in the place of piece i ^ r % 8.
__device__ inline unsigned swizzled(unsigned row, unsigned column) { return column ^ row % 8 * 8; }

__device__ inline unsigned shared(const void* p) { return __cvta_generic_to_shared(p); }

// An mbarrier's parity flips when all arrivals and all expected bytes are there (PTX ISA 9.7.13.15, "mbarrier").
typedef unsigned long long Barrier;
__device__ inline void init(Barrier& barrier, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared(&barrier)), "r"(arrivals));
}
__device__ inline void arrive(Barrier& barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared(&barrier)) : "memory");
}
// At the barrier in the same place of block ``rank`` of the cluster.
__device__ inline void arrive(Barrier& barrier, unsigned rank)
{
    asm volatile("{ .reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there]; }"
                 :: "r"(shared(&barrier)), "r"(rank) : "memory");
}
__device__ inline void arrive_and_expect(Barrier& barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(shared(&barrier)), "r"(bytes) : "memory");
}
// Until flip ``flip`` of the barrier's parity, from 0. That is the barrier's next one, or its last.
__device__ inline void wait(Barrier& barrier, unsigned flip)
{
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" :: "r"(shared(&barrier)), "r"(flip % 2) : "memory");
}

// Begins to copy the box at column x and row y of a matrix; past its edge are zeros (9.7.9.27.1.2,
// "cp.async.bulk.tensor"). The bytes that arrive count at the barrier.
__device__ inline void copy_box(void* to, const TensorMap& map, unsigned x, unsigned y, Barrier& barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :: "r"(shared(to)), "l"(&map), "r"(x), "r"(y), "r"(shared(&barrier)) : "memory");
}
// The same to every block of the cluster, and to the barrier in the same place there.
__device__ inline void copy_box_to_all(void* to, const TensorMap& map, unsigned x, unsigned y, Barrier& barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;" :: "r"(shared(to)), "l"(&map), "r"(x), "r"(y),
                 "r"(shared(&barrier)), "h"((unsigned short)((1 << CLUSTER) - 1)) : "memory");
}

// The same where rows are not 16-byte aligned: ROWS rows of a height x width matrix, element by element, by
// COUNT threads.
template <int ROWS, int COUNT> __device__ inline void copy_elements(
    half_t (*to)[64], const half_t* from, int ld, unsigned x, unsigned y, unsigned width, unsigned height)
{
    unsigned thread;  // asked for each time, or what follows from it stays in registers
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    unsigned column = thread % 64;
    #pragma unroll 8
    for (unsigned row = thread / 64; row < ROWS; row += COUNT / 64) {
        bool inside = y + row < height && x + column < width;
        to[row][swizzled(row, column)] = inside ? from[(size_t)(y + row) * ld + x + column] : 0;
    }
}

// How wgmma finds a matrix (9.7.15.5.1.2.2, "Matrix descriptor"): its address, bytes from one box of B to the
// next, the 1024 bytes from 8 rows to the next, and a swizzle of 128 bytes. Addresses have 18 bits; above them
// is the rank of the block in its cluster, which would change the field beside.
__device__ inline unsigned long long descriptor(const void* p)
{
    unsigned address = shared(p) & 0x3ffff;
    return (unsigned long long)(address >> 4) | (unsigned long long)(sizeof(Stage::b[0]) >> 4) << 16 |
           1024ull >> 4 << 32 | 1ull << 62;
}

// sum += a * b, 64 x 256 x 16, by the 4 warps of a warpgroup (9.7.15.5.2, "wgmma.mma_async"). A lies along k,
// and B does not: the last two numbers.
#define SUM8(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), \
                "+f"(sum[i + 4]), "+f"(sum[i + 5]), "+f"(sum[i + 6]), "+f"(sum[i + 7])
#define SUM32(i) SUM8(i), SUM8(i + 8), SUM8(i + 16), SUM8(i + 24)
__device__ inline void multiply(float (&sum)[128], unsigned long long a, unsigned long long b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, 1, 1, 1, 0, 1;" : SUM32(0), SUM32(32), SUM32(64), SUM32(96) : "l"(a), "l"(b));
}

// Those of a phase, to be waited for together.
__device__ inline void multiply(float (&sum)[128], const half_t (*a)[64], const half_t (*b)[BLOCK_K][64])
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    unsigned long long of_a = descriptor(a), of_b = descriptor(b);
    #pragma unroll
    for (int i = 0; i < BLOCK_K / 16; ++i)  // 16 columns of A's rows, and 16 rows of B, in units of 16 bytes
        multiply(sum, of_a + 2 * i, of_b + 128 * i);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until all phases but the last N are multiplied.
template <int N> __device__ inline void wait_multiplied()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}

// The compiler does not know when wgmma reads and writes the sums: it moves nothing of theirs past this.
__device__ inline void fence(float (&sum)[128])
{
    for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(sum[i]) :: "memory");
}

__device__ inline float to_float(half_t x)
{
#if BFLOAT16
    return __uint_as_float((unsigned)x << 16);  // the upper half of a float
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));  // PTX ISA 9.7.9.22, "cvt"
    return value;
#endif
}

// A pair of C: alpha * sum + beta * C, rounded once. Of C, the ``inside`` ones are read where beta is not 0.
__device__ inline unsigned pair(float alpha, float low, float high, float beta, const half_t* c, int inside)
{
    low *= alpha, high *= alpha;
    if (beta != 0 && inside > 0) low += beta * to_float(c[0]);
    if (beta != 0 && inside > 1) high += beta * to_float(c[1]);
    unsigned packed;
    asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// A warp's tile of C, at row ``top`` and column ``left``: by way of shared memory, 64 columns at a time, so
// that lanes store 16 bytes side by side, or where C's rows are not 16-byte aligned elements.
__device__ inline void store(
    float (&sum)[128], unsigned top, unsigned left, unsigned m, unsigned n,
    float alpha, float beta, half_t* c, int ldc, half_t (*own)[64])
{
    unsigned lane = threadIdx.x % 32;
    bool aligned = (size_t)c % 16 == 0 && ldc % 8 == 0;
    #pragma unroll
    for (int p = 0; p < WARP_N; p += 64, left += 64) {
        __syncwarp();  // everybody has read what was there before
        #pragma unroll
        for (int i = 0; i < 16; ++i) {  // lane l has of rows l / 4 and 8 below the pairs at 8 j + 2 (l % 4)
            unsigned y = i % 2 * 8 + lane / 4, x = i / 2 * 8 + lane % 4 * 2;
            const half_t* at = c + (size_t)(top + y) * ldc + left + x;
            *(unsigned*)&own[y][swizzled(y, x)] =
                pair(alpha, sum[p / 2 + 2 * i], sum[p / 2 + 2 * i + 1], beta, at, top + y < m ? n - left - x : 0);
        }
        __syncwarp();
        #pragma unroll
        for (unsigned y = lane / 8; y < WARP_M; y += 4) {
            unsigned x = lane % 8 * 8;
            const half_t* from = &own[y][swizzled(y, x)];
            half_t* to = c + (size_t)(top + y) * ldc + left + x;
            int inside = top + y < m ? n - left - x : 0;
            if (aligned && inside >= 8) *(uint4*)to = *(const uint4*)from;
            else for (int i = 0; i < 8; ++i) if (i < inside) to[i] = from[i];
        }
    }
}

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1) persistent(
    int m, int n, int k, float alpha, const half_t* a, int lda, const half_t* b, int ldb,
    float beta, half_t* c, int ldc,
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b)
{
    extern __shared__ __align__(1024) char dynamic[];
    Stage* stages = (Stage*)dynamic;
    half_t (*buffers)[64] = (half_t (*)[64])&stages[STAGES];  // a row for each of the tile's, for C
    __shared__ Barrier full[STAGES], empty[STAGES];  // with a phase's tiles; of what nobody reads any more
    unsigned rows = ((unsigned)m + CLUSTER * BLOCK_M - 1) / (CLUSTER * BLOCK_M);
    unsigned columns = ((unsigned)n + BLOCK_N - 1) / BLOCK_N, tiles = rows * columns;
    unsigned rank = blockIdx.x % CLUSTER, top, left;
    // Clusters take GROUP rows of tiles at a time, so that those that run at once share in L2 what they read.
    auto go_to = [&](unsigned tile) {
        unsigned first = tile / (GROUP * columns) * GROUP, here = min(GROUP, rows - first);
        unsigned rest = tile % (GROUP * columns);
        top = ((first + rest % here) * CLUSTER + rank) * BLOCK_M, left = rest / here * BLOCK_N;
    };
    bool aligned = ((size_t)a | (size_t)b) % 16 == 0 && (lda | ldb) % 8 == 0;  // every row is; there are maps
    if (alpha == 0 || m == 0 || n == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread
    unsigned phases = ((unsigned)k + BLOCK_K - 1) / BLOCK_K;

    if (threadIdx.x == 0) {
        for (Barrier& barrier : full) init(barrier, aligned ? 1 : LOADERS);
        for (Barrier& barrier : empty) init(barrier, CLUSTER * CONSUMERS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // TMA and the other block see them
    }
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
    unsigned warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // the compiler knows now that lanes have the same
    unsigned step = 0;  // counts the phases of all tiles
    if (warp < LOADERS / 32) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(LOADER_REGISTERS));
        for (unsigned tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
            if (aligned && threadIdx.x > 0) break;
            go_to(tile);
            for (unsigned phase = 0; phase < phases; ++phase, ++step) {
                unsigned at = step % STAGES, p = phase * BLOCK_K;
                Stage& stage = stages[at];
                wait(empty[at], step / STAGES + 1);  // a new mbarrier passes the first wait
                if (!aligned) {
                    copy_elements<BLOCK_M, LOADERS>(stage.a, a, lda, p, top, k, m);
                    #pragma unroll 1
                    for (int i = 0; i < BLOCK_N / 64; ++i)
                        copy_elements<BLOCK_K, LOADERS>(stage.b[i], b, ldb, left + 64 * i, p, n, k);
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma sees what was stored
                    arrive(full[at]);
                } else {
                    arrive_and_expect(full[at], sizeof(Stage));
                    copy_box(stage.a, map_a, p, top, full[at]);
                    for (int i = rank; i < BLOCK_N / 64; i += CLUSTER)
                        copy_box_to_all(stage.b[i], map_b, left + 64 * i, p, full[at]);
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(CONSUMER_REGISTERS));
        unsigned row = (warp - LOADERS / 32) * WARP_M;
        // Both blocks load into the other one's stages, and wait for its consumers too.
        auto release = [&](unsigned at) {
            if (threadIdx.x % 128 < CLUSTER) arrive(empty[at], threadIdx.x % 128);
        };
        for (unsigned tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
            go_to(tile);
            float sum[128] = {};
            fence(sum);
            #pragma unroll 1
            for (unsigned phase = 0; phase < phases; ++phase, ++step) {
                unsigned at = step % STAGES;
                wait(full[at], step / STAGES);
                multiply(sum, &stages[at].a[row / 64 * 64], stages[at].b);
                wait_multiplied<1>();  // this warpgroup does not read the stage before any more
                if (phase > 0) release((step - 1) % STAGES);
            }
            wait_multiplied<0>();
            fence(sum);
            if (phases > 0) release((step - 1) % STAGES);
            store(sum, top + row, left, m, n, alpha, beta, c, ldc, &buffers[row]);
        }
    }
    // No block ends while the other one copies to it or arrives at its barriers.
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}
