// Idea: double_buffered with its sizes chosen by a sweep, and so the order of its multiply-adds; its blocks
// go in an order that shares in L2; and copies run STAGES - 1 phases ahead, with addresses carried along.
// Cost: so many registers a thread that 8 to 16 warps take all that a multiprocessor has.
// Next: tensor_core has 16-bit matrices multiplied by the units that are there for that.

#ifndef real
#define real float
#endif
#ifndef BLOCK_M  // of C, a block's tile; BLOCK_K is how deep it is along k
#define BLOCK_M 64
#define BLOCK_N 128
#define BLOCK_K 16
#define THREAD_M 8  // what a thread computes
#define THREAD_N 8
#define LANES_M 2  // of a warp's 32 lanes, down its tile
#define STAGES 3   // of tiles in shared memory
#define DOUBLE_BUFFER 0    // 1 to read what a step of k needs during the step before
#define ORDER_M 1  // a thread goes through its elements in rectangles of ORDER_M x ORDER_N,
#define ORDER_N 4
#define BY_ROWS 0        // row by row of them or column by column,
#define INNER_BY_ROWS 1  // and within each likewise
#endif
#ifndef SLICES
#define SLICES 1  // groups of as many warps that share each phase's k, and add their sums up
#endif
#ifndef BLOCKS
#define BLOCKS 1  // of a multiprocessor at once, at least
#endif
#ifndef STAGED
#define STAGED 0  // 1 to store C by way of shared memory where its rows are not 16-byte aligned
#endif
#define GROUP 8  // rows of tiles whose blocks run together

constexpr int LANES_N = 32 / LANES_M, WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr int SLICE = 32 * WARPS_M * WARPS_N, THREADS = SLICES * SLICE;
constexpr int SLICE_K = BLOCK_K / SLICES;
constexpr int WIDTH = 16 / sizeof(real);   // elements of 16 bytes
constexpr int SECTOR = 32 / sizeof(real);  // elements of a sector
constexpr int PITCH = BLOCK_M + 4;         // of A's tile: the lanes that copy along k use all banks
constexpr int SIZE_A = BLOCK_K * PITCH, STAGE = SIZE_A + BLOCK_K * BLOCK_N;

static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0 && BLOCK_K % SECTOR == 0);
static_assert(THREAD_M % WIDTH == 0 && THREAD_N % WIDTH == 0 && BLOCK_K % SLICES == 0);
static_assert(THREAD_M % ORDER_M == 0 && THREAD_N % ORDER_N == 0);

struct __align__(16) Vector { real x[WIDTH]; };

// Begins to copy BYTES bytes to shared memory, or where not ``inside`` zeros.
template <int BYTES> __device__ inline void copy_async(real* to, const real* from, bool inside)
{
    unsigned at = __cvta_generic_to_shared(to);
    // PTX ISA 9.7.9.25.3.1, "cp.async".
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(at), "l"(from), "r"(inside ? 16 : 0) : "memory");
    else  // what lies beside it is asked for next
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;"
                     :: "r"(at), "l"(from), "n"(BYTES), "r"(inside ? BYTES : 0) : "memory");
}

// The row of A, or column of B, to copy where ``i`` of the tile at ``first`` is asked for. Past the last of
// ``count`` it is one of the tile before, or of this one again, for what comes of it is not stored.
// Neighbours remain neighbours: the hardware serves copies of one element to many places one by one.
template <int EDGE> __device__ inline unsigned clamped(unsigned first, unsigned i, unsigned count)
{
    if (first + i < count) return first + i;
    return first ? first + i - EDGE : i % count;
}

// Copies A's tiles, each transposed and so an element at a time; lanes go along k, a sector each.
struct CopierA {
    // Where there are more threads than a sector of each row takes, they take several of a row.
    static constexpr int SECTORS = THREADS / SECTOR > BLOCK_M ? THREADS / SECTOR / BLOCK_M : 1;
    static constexpr int DOWN = THREADS / SECTOR / SECTORS, COUNT = BLOCK_M / DOWN;
    static_assert(BLOCK_M % DOWN == 0 && BLOCK_K % (SECTORS * SECTOR) == 0);
    const real* from[COUNT];
    unsigned to, k;

    __device__ CopierA(const real* a, long long lda, unsigned top, unsigned m)
    {
        k = threadIdx.x % SECTOR + (SECTORS > 1 ? threadIdx.x / (SECTOR * DOWN) * SECTOR : 0);
        unsigned row = SECTORS > 1 ? threadIdx.x / SECTOR % DOWN : threadIdx.x / SECTOR;
        to = k * PITCH + row;
        #pragma unroll
        for (int i = 0; i < COUNT; ++i)
            from[i] = a + clamped<BLOCK_M>(top, row + i * DOWN, m) * lda + k;
    }
    // The next ``steps`` of k, and zeros for what is left of BLOCK_K; ALL if nothing is.
    template <bool ALL> __device__ void copy(real* tile, unsigned steps = BLOCK_K)
    {
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            #pragma unroll
            for (int j = 0; j < BLOCK_K; j += SECTORS * SECTOR)
                copy_async<sizeof(real)>(tile + to + j * PITCH + i * DOWN, from[i] + j, ALL || j + k < steps);
            from[i] += steps;
        }
    }
};

constexpr int common_divisor(int a, int b) { return b ? common_divisor(b, a % b) : a; }

// Copies B's tiles, W elements of a row at a time.
template <int W> struct CopierB {
    static constexpr int ACROSS = common_divisor(BLOCK_N / W, THREADS), COUNT = BLOCK_N / W / ACROSS;
    static constexpr int DEEP = THREADS / ACROSS, ROWS = BLOCK_K < DEEP ? 1 : BLOCK_K / DEEP;
    static_assert(BLOCK_K % DEEP == 0 || DEEP % BLOCK_K == 0);
    const real* from[COUNT];
    long long pitch;
    unsigned to, k;

    __device__ CopierB(const real* b, long long ldb, unsigned left, unsigned n)
    {
        unsigned col = threadIdx.x % ACROSS * W;
        k = threadIdx.x / ACROSS;
        to = k * BLOCK_N + col;
        pitch = ldb;
        #pragma unroll
        for (int i = 0; i < COUNT; ++i)
            from[i] = b + k * pitch + clamped<BLOCK_N>(left, col + i * ACROSS * W, n);
    }
    template <bool ALL> __device__ void copy(real* tile, unsigned steps = BLOCK_K)
    {
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            #pragma unroll
            for (int j = 0; j < ROWS; ++j)
                if (DEEP <= BLOCK_K || k < BLOCK_K)
                    copy_async<W * sizeof(real)>(tile + to + j * DEEP * BLOCK_N + i * ACROSS * W,
                                                 from[i] + j * DEEP * pitch, ALL || k + j * DEEP < steps);
            from[i] += steps * pitch;
        }
    }
};

// Where in its warp's tile a lane's ``i``th row or column is: its pieces of 16 bytes are LANES pieces apart.
template <int LANES> __device__ constexpr int line_of(int lane, int i)
{
    return (i / WIDTH * LANES + lane) * WIDTH + i % WIDTH;
}

// Which of a warp's lanes down its tile's rows, and which across its columns, this is. Lanes 0 and 1 share
// what they read of B, 0 and 2 what they read of A: so the hardware serves twice as many lanes at once.
__device__ inline unsigned lane_down()
{
    const unsigned lane = threadIdx.x % 32;
    return lane % 2 + lane / 4 % (LANES_M / 2) * 2;
}
__device__ inline unsigned lane_across()
{
    const unsigned lane = threadIdx.x % 32;
    return lane / 2 % 2 + lane / 4 / (LANES_M / 2) * 2;
}

// A thread's first row and column in the block's tile.
__device__ inline unsigned first_row()
{
    return threadIdx.x / 32 % WARPS_M * WARP_M + line_of<LANES_M>(lane_down(), 0);
}
__device__ inline unsigned first_column()
{
    unsigned warp = (SLICES > 1 ? threadIdx.x % SLICE : threadIdx.x) / 32;
    return warp / WARPS_M * WARP_N + line_of<LANES_N>(lane_across(), 0);
}

// What a thread reads of a tile for one step of k: COUNT elements of a row of the tile, which has PITCH.
template <int COUNT, int LANES, int PITCH> struct Operand {
    Vector x[COUNT / WIDTH];

    static __device__ constexpr int place(int step, int i) { return step * PITCH + line_of<LANES>(0, i); }
    // ``from`` is where the thread's first piece is at the first step.
    __device__ void read(const real* from, int step)
    {
        #pragma unroll
        for (int i = 0; i < COUNT; i += WIDTH) x[i / WIDTH] = *(const Vector*)(from + place(step, i));
    }
    __device__ real at(int i) const { return x[i / WIDTH].x[i % WIDTH]; }
};

// Adds one step of k. A thread goes through its elements there and back again, for neighbours share a factor,
// which then comes from the register file's cache: a multiply-add that takes three registers from the file
// itself takes longer.
template <typename OperandA, typename OperandB>
__device__ inline void multiply_add(real (&sum)[THREAD_M][THREAD_N], const OperandA& x, const OperandB& y)
{
    constexpr int DOWN = THREAD_M / ORDER_M, ACROSS = THREAD_N / ORDER_N;
    #pragma unroll
    for (int i = 0; i < DOWN * ACROSS; ++i) {
        const int slow = BY_ROWS ? i / ACROSS : i / DOWN, fast = BY_ROWS ? i % ACROSS : i % DOWN;
        const int back = slow % 2 ? (BY_ROWS ? ACROSS : DOWN) - 1 - fast : fast;
        const int top = (BY_ROWS ? slow : back) * ORDER_M, left = (BY_ROWS ? back : slow) * ORDER_N;
        #pragma unroll
        for (int j = 0; j < ORDER_M * ORDER_N; ++j) {
            constexpr int LENGTH = INNER_BY_ROWS ? ORDER_N : ORDER_M;
            const int s = j / LENGTH, f = (s + i) % 2 ? LENGTH - 1 - j % LENGTH : j % LENGTH;
            const int u = top + (INNER_BY_ROWS ? s : f), v = left + (INNER_BY_ROWS ? f : s);
            sum[u][v] += x.at(u) * y.at(v);
        }
    }
}

// Adds the block's tile of A B, at (top, left), to ``sum``. B is copied W elements at a time.
template <int W> __device__ inline void multiply(
    real (&sum)[THREAD_M][THREAD_N], real* shared, const real* a, long long lda, const real* b, long long ldb,
    unsigned top, unsigned left, unsigned m, unsigned n, unsigned k)
{
    if (k == 0 || m == 0 || n == 0) return;  // nothing may be read
    const int phases = (k - 1) / BLOCK_K + 1;
    CopierA copier_a(a, lda, top, m);
    CopierB<W> copier_b(b, ldb, left, n);
    auto copy = [&](int stage, int phase) {
        if (phase < phases) {
            copier_a.copy<true>(shared + stage);
            copier_b.template copy<true>(shared + stage + SIZE_A);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    // Where k is no multiple of BLOCK_K, the first phase is the short one: the others need no checks.
    const unsigned first = k - (phases - 1) * BLOCK_K;
    copier_a.copy<false>(shared, first);
    copier_b.template copy<false>(shared + SIZE_A, first);
    asm volatile("cp.async.commit_group;" ::: "memory");
    #pragma unroll
    for (int i = 1; i < STAGES - 1; ++i) copy(i * STAGE, i);
    // Waits for the next stage's tiles, and until everybody has read those of the stage before.
    auto wait = [] {
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
        __syncthreads();
    };

    const real* of_a = shared + first_row();
    const real* of_b = shared + SIZE_A + first_column();
    if (SLICES > 1) {
        const int k_first = threadIdx.x / SLICE * SLICE_K;
        of_a += k_first * PITCH;
        of_b += k_first * BLOCK_N;
    }
    Operand<THREAD_M, LANES_M, PITCH> x[2];  // in turn: where DOUBLE_BUFFER, the next are read while the present
    Operand<THREAD_N, LANES_N, BLOCK_N> y[2];  // ones are used
    auto read = [&](int stage, int i) {
        x[i % 2].read(of_a + stage, i);
        y[i % 2].read(of_b + stage, i);
    };
    constexpr int LAST = (STAGES - 1) * STAGE;
    int stage = 0, ahead = LAST;
    wait();
    if (DOUBLE_BUFFER) read(0, 0);
    for (int phase = 0; phase < phases; ++phase) {
        const int next = stage == LAST ? 0 : stage + STAGE;
        #pragma unroll
        for (int i = 0; i < SLICE_K; ++i) {
            if (!DOUBLE_BUFFER) read(stage, i);
            else if (i < SLICE_K - 1) read(stage, i + 1);
            else {
                if (phase + 1 < phases) {
                    wait();
                    stage = next;
                }
                read(stage, 0);  // after the last phase it is read again, and not used
            }
            if (i == 0) {
                copy(ahead, phase + STAGES - 1);
                ahead = ahead == LAST ? 0 : ahead + STAGE;
            }
            multiply_add(sum, x[i % 2], y[i % 2]);
        }
        if (!DOUBLE_BUFFER && phase + 1 < phases) {
            wait();
            stage = next;
        }
    }
}

// Adds the slices' sums up, in their order: the first slice has them then. The tiles in ``shared`` are
// overwritten.
__device__ inline void add_slices(real (&sum)[THREAD_M][THREAD_N], real* shared)
{
    if (SLICES == 1) return;
    constexpr int COUNT = THREAD_M * THREAD_N / WIDTH;
    static_assert((SLICES - 1) * COUNT * WIDTH * SLICE <= STAGES * STAGE);
    const unsigned slice = threadIdx.x / SLICE;
    Vector* sums = (Vector*)shared + threadIdx.x % SLICE;
    auto own = [&](int i) -> real* { return &sum[i * WIDTH / THREAD_N][i * WIDTH % THREAD_N]; };
    __syncthreads();  // everybody has read the tiles
    if (slice > 0)
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) sums[((slice - 1) * COUNT + i) * SLICE] = *(const Vector*)own(i);
    __syncthreads();
    if (slice > 0) return;
    #pragma unroll
    for (int s = 0; s < SLICES - 1; ++s)
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const Vector found = sums[(s * COUNT + i) * SLICE];
            #pragma unroll
            for (int j = 0; j < WIDTH; ++j) own(i)[j] += found.x[j];
        }
}

// C = alpha sum + beta C of the block's tile at (top, left), 16 bytes at a time where C has them.
__device__ inline void store(
    const real (&sum)[THREAD_M][THREAD_N], real alpha, real beta, real* c, long long ldc,
    unsigned top, unsigned left, unsigned m, unsigned n)
{
    const bool aligned = ldc % WIDTH == 0 && (size_t)c % 16 == 0;
    #pragma unroll
    for (int j = 0; j < THREAD_M; ++j) {
        const unsigned row = top + first_row() + line_of<LANES_M>(0, j);
        if (row >= m) continue;
        #pragma unroll
        for (int l = 0; l < THREAD_N; l += WIDTH) {
            const unsigned col = left + first_column() + line_of<LANES_N>(0, l);
            Vector found;
            #pragma unroll
            for (int i = 0; i < WIDTH; ++i) {
                found.x[i] = alpha * sum[j][l + i];
                if (beta != 0 && col + i < n) found.x[i] += beta * *(c + row * ldc + (col + i));
            }
            if (aligned && col + WIDTH <= n) *(Vector*)(c + row * ldc + col) = found;
            else
                #pragma unroll
                for (int i = 0; i < WIDTH; ++i)
                    if (col + i < n) *(c + row * ldc + (col + i)) = found.x[i];
        }
    }
}

// The same by way of shared memory, a row of each thread at a time, so that neighbouring lanes store
// neighbours.
__device__ inline void store_staged(
    const real (&sum)[THREAD_M][THREAD_N], real* shared, real alpha, real beta, real* c, long long ldc,
    unsigned top, unsigned left, unsigned m, unsigned n)
{
    static_assert(!STAGED || SLICES == 1 && SLICE * THREAD_N <= STAGES * STAGE);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    real* rows = shared + warp * 32 * THREAD_N;
    top += warp % WARPS_M * WARP_M;
    left += warp / WARPS_M * WARP_N;
    __syncthreads();  // everybody has read the tiles
    #pragma unroll
    for (int j = 0; j < THREAD_M; ++j) {
        #pragma unroll
        for (int l = 0; l < THREAD_N; l += WIDTH) {
            Vector found;
            #pragma unroll
            for (int i = 0; i < WIDTH; ++i) found.x[i] = alpha * sum[j][l + i];
            *(Vector*)(rows + lane_down() * WARP_N + line_of<LANES_N>(lane_across(), l)) = found;
        }
        __syncwarp();
        #pragma unroll 4
        for (int i = 0; i < THREAD_N; ++i) {
            const unsigned at = i * 32 + lane, col = left + at % WARP_N;
            const unsigned row = top + line_of<LANES_M>(at / WARP_N, j);
            if (row >= m || col >= n) continue;
            real found = rows[at];
            if (beta != 0) found += beta * *(c + row * ldc + col);
            *(c + row * ldc + col) = found;
        }
        __syncwarp();
    }
}

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) tuned(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    __shared__ __align__(16) real shared[STAGES * STAGE];
    // Blocks take GROUP rows of tiles at a time, so that those that run at once share in L2 what they read.
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    const unsigned first = block / (GROUP * gridDim.x) * GROUP, here = min(GROUP, gridDim.y - first);
    const unsigned rest = block % (GROUP * gridDim.x);
    unsigned top = (first + rest % here) * BLOCK_M, left = rest / here * BLOCK_N;
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    real sum[THREAD_M][THREAD_N] = {};
    const long long pitch_a = lda, pitch_b = ldb;
    bool aligned = (size_t)b % 16 == 0 && ldb % WIDTH == 0 && n % WIDTH == 0;
    if (aligned) multiply<WIDTH>(sum, shared, a, pitch_a, b, pitch_b, top, left, m, n, k);
    else multiply<1>(sum, shared, a, pitch_a, b, pitch_b, top, left, m, n, k);
    add_slices(sum, shared);
    if (SLICES > 1 && threadIdx.x >= SLICE) return;
    if (STAGED && ((size_t)c % 16 || ldc % WIDTH))
        store_staged(sum, shared, alpha, beta, c, ldc, top, left, m, n);
    else
        store(sum, alpha, beta, c, ldc, top, left, m, n);
}
