// D = alpha A B + beta C of float or double where A has few rows, or B few columns, and the other
// operand, ``many``, is K-major: bound by memory, so each of its elements is read once, where it
// lies. A warp's lanes are neighbours along k and take ROWS lines at once. SPLIT warps of a block
// divide k, and so may blocks along z, each of which stores partial sums that splitk_sum.cu adds
// up. All sums are added up in a fixed order.
//
// Macros: real, the elements' type; ROWS; FEW, the most lines of ``few``; WIDTH and FEW_WIDTH,
// elements that are read at once, 16 bytes or 1; DEEP, pieces of each line that a lane has in
// flight; SPLIT; RESIDENTS, blocks that a multiprocessor holds; OVERLAP as in launch.cuh.
#include "epilogue.cuh"
#include "launch.cuh"
#include "thin_real.cuh"

constexpr int WARPS = 8, SUMS = ROWS * FEW;
constexpr int STEP = 32 * WIDTH * DEEP;  // of k
static_assert(SUMS <= 32 && 32 % SUMS == 0 && WARPS % SPLIT == 0 && WIDTH % FEW_WIDTH == 0);

// Neighbours along k, of which ``left`` are there, and zeros.
template <bool WHOLE> __device__ inline Piece load(const real* from, int left) {
    if (WIDTH == 1 || WHOLE || left >= WIDTH) return WHOLE || left > 0 ? load_once(from) : Piece{};
    Piece found = {};
    #pragma unroll
    for (int i = 0; i < WIDTH; ++i)
        if (i < left) found.x[i] = from[i];
    return found;
}
template <bool WHOLE> __device__ inline Piece load_few(const real* from, long long along, int left) {
    Piece found = {};
    #pragma unroll
    for (int i = 0; i < WIDTH; i += FEW_WIDTH) {
        if (FEW_WIDTH > 1 && (WHOLE || left >= WIDTH)) {
            const FewPiece some = *(const FewPiece*)(from + i);
            #pragma unroll
            for (int j = 0; j < FEW_WIDTH; ++j) found.x[i + j] = some.x[j];
        } else
            #pragma unroll
            for (int j = 0; j < FEW_WIDTH; ++j)
                if (WHOLE || i + j < left) found.x[i + j] = from[(i + j) * along];
    }
    return found;
}

// Adds a lane's products of one STEP of k; ``left`` elements are there from its first one on.
template <bool WHOLE>
__device__ inline void add_step(real (&sum)[SUMS], const real* const (&many)[ROWS], const real* few,
                                const Product& p, int left) {
    Piece x[DEEP][ROWS];
    #pragma unroll
    for (int i = 0; i < DEEP; ++i)
        #pragma unroll
        for (int u = 0; u < ROWS; ++u)
            x[i][u] = load<WHOLE>(many[u] + i * 32 * WIDTH, left - i * 32 * WIDTH);
    #pragma unroll
    for (int i = 0; i < DEEP; ++i)
        #pragma unroll
        for (int v = 0; v < FEW; ++v) {
            const real* from = few + min(v, (int)p.few_rows - 1) * p.few_pitch
                + i * 32 * WIDTH * p.few_along;
            const Piece y = load_few<WHOLE>(from, p.few_along, left - i * 32 * WIDTH);
            #pragma unroll
            for (int u = 0; u < ROWS; ++u)
                #pragma unroll
                for (int j = 0; j < WIDTH; ++j) sum[u * FEW + v] += x[i][u].x[j] * y.x[j];
        }
}

// Sum number ``lane % COUNT`` of all lanes. While a lane has several sums, it gives half of them to
// another lane for that lane's other half, so that COUNT sums take hardly more shuffles than one.
template <int COUNT> __device__ inline real add_lanes(const real (&sum)[COUNT], unsigned lane) {
    constexpr int HALF = COUNT / 2;
    const bool upper = lane & HALF;
    real added[HALF];
    #pragma unroll
    for (int i = 0; i < HALF; ++i) {
        const real low = sum[i], high = sum[i + HALF];
        added[i] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, HALF);
    }
    return add_lanes(added, lane);
}
template <> __device__ inline real add_lanes(const real (&sum)[1], unsigned lane) {
    real found = sum[0];
    #pragma unroll
    for (int j = 16; j >= SUMS; j /= 2) found += __shfl_xor_sync(~0u, found, j);
    return found;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENTS)
thin_real_k_major(const __grid_constant__ Product p FUSED_PARAMETER) {
    __shared__ real parts[WARPS][SUMS];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % SPLIT;
    const unsigned top = (blockIdx.x * (WARPS / SPLIT) + warp / SPLIT) * ROWS;
    const unsigned begin = blockIdx.z * p.part_k;
    const unsigned end = blockIdx.z + 1 < gridDim.z ? begin + p.part_k : p.k;
    const unsigned first = begin + part * STEP + lane * WIDTH;  // of a lane, of k
    begin_launch();
    for (unsigned batch = blockIdx.y; batch < p.batch; batch += gridDim.y) {
        const real* few = p.few + batch * p.few_step + first * p.few_along;
        const real* many[ROWS];
        // Past the last line, that one is read again; its products are not stored.
        #pragma unroll
        for (int u = 0; u < ROWS; ++u)
            many[u] = p.many + batch * p.many_step + min(top + u, p.rows - 1) * p.many_pitch + first;
        real sum[SUMS] = {};
        for (unsigned step = begin + part * STEP; step < end; step += SPLIT * STEP) {
            const int left = end - step - lane * WIDTH;
            if (step + STEP <= end) add_step<true>(sum, many, few, p, left);
            else add_step<false>(sum, many, few, p, left);
            #pragma unroll
            for (int u = 0; u < ROWS; ++u) many[u] += SPLIT * STEP;
            few += SPLIT * STEP * p.few_along;
        }
        real mine = add_lanes(sum, lane);
        if (SPLIT > 1) {
            if (lane < SUMS) parts[warp][lane] = mine;
            __syncthreads();
            if (part == 0 && lane < SUMS)
                #pragma unroll
                for (int i = 1; i < SPLIT; ++i) mine += parts[warp + i][lane];
            __syncthreads();  // before the next matrix's
        }
        const unsigned row = top + lane / FEW, other = lane % FEW;
        if (part > 0 || lane >= SUMS || row >= p.stored || other >= p.few_rows) continue;
        real value = epilogue(mine, p.alpha, p.beta, [&] {
            return p.c[batch * p.c_step + row * p.c_many + other * p.c_few];
        });
        value = FUSED(value, batch, other, row);
        p.d[blockIdx.z * p.part_stride + batch * p.d_step + row * p.d_many + other * p.d_few] = value;
    }
}
