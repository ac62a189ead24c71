// D = alpha A B + beta C of double by tensor cores, batched: a block for each tile of D along x, of one
// matrix of the batch after another. Blocks along y divide k; each stores sums of its own, which
// fma_sum.cu adds up. For Hopper GPUs.
//
// Macros: BLOCK_M, BLOCK_N, a block's tile of D; WARPS_M, WARPS_N, how many warps share it each way;
// STAGES, of tiles in shared memory; BLOCKS of a multiprocessor, at least; A_ALONG_K, B_ALONG_K, 1
// where k is the contiguous dimension and 0 where the other is.
#include "bulk.cuh"
#include "product.cuh"

constexpr int WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr int WARPS = WARPS_M * WARPS_N, THREADS = 32 * WARPS;
constexpr int LINE = 128, BLOCK_K = LINE / 8;  // bytes that are swizzled together, and how deep that is
constexpr int STAGE = (BLOCK_M + BLOCK_N) * LINE;
// A product takes 16 lines of one matrix, the first, and 8 of the other. A lane reads two lines at once
// where they are neighbours, or else two of k: all of k that it needs if the first's are neighbours. So
// B is the first where only A's lines lie along k.
constexpr bool TURNED = A_ALONG_K && !B_ALONG_K;
constexpr bool FIRST_ALONG_K = A_ALONG_K && B_ALONG_K, SECOND_ALONG_K = A_ALONG_K || B_ALONG_K;
constexpr int FIRSTS = (TURNED ? WARP_N : WARP_M) / 16, SECONDS = (TURNED ? WARP_M : WARP_N) / 16;
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0);
// How many phases after its use a stage is filled again: with two, hardly anybody has to wait for that.
constexpr int LAG = STAGES > 4 ? 2 : 1;
static_assert(STAGES > LAG);

struct __align__(16) Pair { double x[2]; };

// A tile in shared memory, of COUNT lines of BLOCK_K, as bulk copies leave it: LINE bytes of one line,
// or of 16 lines at one k, whose pieces of 16 bytes lie by the number of the LINE bytes, modulo 8.
template <int COUNT, bool ALONG_K>
__device__ inline void copy_tile(u32 to, const TensorMap& map, int line, int k, int matrix,
                                 u32 barrier) {
    #pragma unroll
    for (int i = 0; i < (ALONG_K ? 1 : COUNT / 16); ++i)
        tma_load<false>(to + 16 * i * LINE, map, ALONG_K ? k : line + 16 * i, ALONG_K ? line : k, matrix,
                        barrier, 0);
}

// Of a lane, g is lane / 4 and t is lane % 4. At each of two steps it has two of the BLOCK_K, e = 0 and 1:
// any two, as long as they are the same of both matrices. With these, lanes that read at once read from
// all banks, and a step's place is another's but for some bits.
__device__ inline unsigned first_k(unsigned t) {
    return FIRST_ALONG_K ? 8 * (t / 2) + t % 2 : 4 * t + 2 * (t / 2);
}

// Where in a tile a lane's first element of 16 lines is, in bytes.
template <bool ALONG_K> __device__ inline unsigned first_place() {
    const unsigned g = threadIdx.x % 32 / 4, k = first_k(threadIdx.x % 4);
    return ALONG_K ? g * LINE + (k / 2 ^ g) * 16 + k % 2 * 8 : k * LINE + (g ^ k % 8) * 16;
}
// Of 16 lines: a lane's two at a step's two k. ``place`` is where its first element is.
template <bool ALONG_K>
__device__ inline void read_lines(double (&x)[2][2], const char* shared, unsigned place, int step) {
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (!ALONG_K) {
            const Pair found = *(const Pair*)(shared + (place ^ (2 * step + i) * (LINE + 16)));
            x[0][i] = found.x[0], x[1][i] = found.x[1];
        } else if (!FIRST_ALONG_K) *(Pair*)x[i] = *(const Pair*)(shared + (place ^ step * 16) + 8 * i * LINE);
        else
            #pragma unroll
            for (int e = 0; e < 2; ++e)
                x[i][e] = *(const double*)(shared + (place ^ (2 * step + e) * 16) + 8 * i * LINE);
    }
}
// Which of 16 lines is the ``i``th of the first 8, or of the others.
template <bool ALONG_K> __device__ inline unsigned line_of(unsigned i, int half) {
    return ALONG_K ? i + 8 * half : 2 * i + half;
}

// PTX ISA 9.7.14.5, "mma": a lane's part of 16 lines by 8, at 8 of k.
__device__ inline void multiply_add(double (&sum)[4], const double (&x)[2][2], const double (&y)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
        : "d"(x[0][0]), "d"(x[1][0]), "d"(x[0][1]), "d"(x[1][1]), "d"(y[0]), "d"(y[1]));
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
gemm_dmma(const __grid_constant__ Product<double> p, const __grid_constant__ TensorMap of_a,
          const __grid_constant__ TensorMap of_b) {
    __shared__ __align__(1024) char shared[STAGES * STAGE];
    __shared__ u64 full[STAGES], empty[STAGES];
    begin_launch();
    const Place at(p, BLOCK_M, BLOCK_N);
    const int phases = at.begin < at.end ? (at.end - at.begin - 1) / BLOCK_K + 1 : 0;
    const u32 tiles = shared_address(shared);
    const u32 full_at = shared_address(full), empty_at = shared_address(empty);
    // A matrix that is the batch's only one is the map's only one.
    const int matrix_a = p.a.batch_stride ? at.batch : 0, matrix_b = p.b.batch_stride ? at.batch : 0;
    auto copy = [&](int stage, int phase) {
        if (phase >= phases) return;
        const u32 to = tiles + stage * STAGE, barrier = full_at + 8 * stage;
        const int k = at.begin + phase * BLOCK_K;
        barrier_expect(barrier, STAGE);
        copy_tile<BLOCK_M, A_ALONG_K>(to, of_a, at.top, k, matrix_a, barrier);
        copy_tile<BLOCK_N, B_ALONG_K>(to + BLOCK_M * LINE, of_b, at.left, k, matrix_b, barrier);
    };
    if (threadIdx.x == 0) {
        #pragma unroll
        for (int i = 0; i < STAGES; ++i) {
            barrier_init(full_at + 8 * i, 1);
            barrier_init(empty_at + 8 * i, WARPS);
        }
        barrier_fence_init();
        #pragma unroll
        for (int i = 0; i < STAGES - LAG; ++i) copy(i, i);
    }
    __syncthreads();  // the barriers are there

    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned row = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    const unsigned place_a = row * LINE, place_b = (BLOCK_M + column) * LINE;
    const unsigned first = (TURNED ? place_b : place_a) + first_place<FIRST_ALONG_K>();
    const unsigned second = (TURNED ? place_a : place_b) + first_place<SECOND_ALONG_K>();
    double sum[FIRSTS][SECONDS][2][4] = {};
    int stage = 0;
    u32 parity = 0;
    for (int phase = 0; phase < phases; ++phase) {
        barrier_wait(full_at + stage * 8, parity);
        #pragma unroll
        for (int step = 0; step < BLOCK_K / 8; ++step) {
            double x[FIRSTS][2][2], y[SECONDS][2][2];
            #pragma unroll
            for (int i = 0; i < FIRSTS; ++i)
                read_lines<FIRST_ALONG_K>(x[i], shared, stage * STAGE + first + 16 * i * LINE, step);
            #pragma unroll
            for (int j = 0; j < SECONDS; ++j)
                read_lines<SECOND_ALONG_K>(y[j], shared, stage * STAGE + second + 16 * j * LINE, step);
            #pragma unroll
            for (int i = 0; i < FIRSTS; ++i)
                #pragma unroll
                for (int j = 0; j < 2 * SECONDS; ++j)
                    multiply_add(sum[i][j / 2][j % 2], x[i], y[j / 2][j % 2]);
            if (step == BLOCK_K / 8 - 1) {
                // An arrival alone does not wait for what was asked of shared memory before it, and
                // copies have overtaken that.
                fence_async();
                __syncwarp();
                if (lane == 0) barrier_arrive<false>(empty_at + 8 * stage);
            }
            // Behind the first step's multiply-adds, which go on meanwhile, by another warp each phase:
            // to begin the copies takes long enough for one warp to fall behind.
            if (step == 0 && lane == 0 && warp == phase % WARPS) {
                const int next = stage < LAG ? stage - LAG + STAGES : stage - LAG;
                if (phase >= LAG) barrier_wait(empty_at + 8 * next, stage < LAG ? parity ^ 1 : parity);
                copy(next, phase + STAGES - LAG);
            }
        }
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }

    const Elements<const double> c = p.c[at.batch];
    Elements<double> d = p.d[at.batch];
    d.pointer += at.part * p.part_stride;
    const bool by_pairs = d.column_stride == 1 && d.row_stride % 2 == 0 && (size_t)d.pointer % 16 == 0;
    const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    #pragma unroll
    for (int i = 0; i < FIRSTS; ++i)
        #pragma unroll
        for (int j = 0; j < SECONDS; ++j)
            #pragma unroll
            for (int u = 0; u < 4; ++u) {  // a pair of neighbours in a row of D
                // The first one's lines: of the first, and of two of the second of each of its halves.
                const int of_first = TURNED ? 0 : u % 2, half = SECOND_ALONG_K ? u / 2 : 0;
                const int of_two = TURNED ? u % 2 : SECOND_ALONG_K ? 0 : u / 2;
                const double (&of)[2][4] = sum[i][j];
                const double next = TURNED ? of[half][2 + of_two]
                    : SECOND_ALONG_K ? of[half][2 * of_first + 1] : of[1][2 * of_first + of_two];
                Pair found = {of[half][2 * of_first + of_two], next};
                const unsigned line = 16 * i + line_of<FIRST_ALONG_K>(g, of_first);
                const unsigned other = 16 * j + line_of<SECOND_ALONG_K>(2 * t + of_two, half);
                const unsigned y = at.top + row + (TURNED ? other : line);
                const unsigned x = at.left + column + (TURNED ? line : other);
                if (y >= p.m) continue;
                #pragma unroll
                for (int v = 0; v < 2; ++v) {
                    found.x[v] *= p.alpha;
                    if (p.beta != 0 && x + v < p.n) found.x[v] += p.beta * *c.at(y, x + v);
                }
                if (by_pairs && x + 2 <= p.columns) *(Pair*)d.at(y, x) = found;
                else
                    #pragma unroll
                    for (int v = 0; v < 2; ++v)
                        if (x + v < p.columns) *d.at(y, x + v) = found.x[v];
            }
}
