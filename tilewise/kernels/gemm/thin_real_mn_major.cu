// As thin_real_k_major.cu where ``many`` is MN-major: a warp's lanes are neighbours along its
// lines, and go through k, DEEP of it at once. SPLIT warps of a block divide k, and so may blocks
// along z, each of which stores partial sums that splitk_sum.cu adds up. All sums are added up in a
// fixed order.
//
// Macros: real, the elements' type; FEW, the most lines of ``few``; WIDTH, lines of ``many`` that
// are read at once, 16 bytes or 1; FEW_WIDTH, elements of ``few`` along k, likewise; DEEP; SPLIT;
// RESIDENTS, blocks that a multiprocessor holds; OVERLAP as in launch.cuh.
#include "epilogue.cuh"
#include "launch.cuh"
#include "thin_real.cuh"

constexpr int WARPS = 8, LINES = 16 / sizeof(real), SUMS = FEW * LINES;  // a lane's
static_assert(WARPS % SPLIT == 0 && LINES % WIDTH == 0 && DEEP % FEW_WIDTH == 0);

// The line of the warp that is a lane's ``j``th.
__device__ inline unsigned line_of(unsigned lane, int j) {
    return WIDTH > 1 ? lane * WIDTH + j : j * 32 + lane;
}

// Adds the products of DEEP of k, of which ``left`` are there; ``many`` points at a lane's pieces
// of the first.
template <bool WHOLE>
__device__ inline void add_step(real (&sum)[FEW][LINES], const real* const (&many)[LINES / WIDTH],
                                const real* few, const Product& p, int left) {
    Piece x[DEEP][LINES / WIDTH];
    #pragma unroll
    for (int i = 0; i < DEEP; ++i)
        #pragma unroll
        for (int j = 0; j < LINES / WIDTH; ++j) {
            x[i][j] = {};
            if (WHOLE || i < left) x[i][j] = load_once(many[j] + i * p.many_pitch);
        }
    #pragma unroll
    for (int v = 0; v < FEW; ++v) {
        const real* from = few + min(v, (int)p.few_rows - 1) * p.few_pitch;
        #pragma unroll
        for (int i = 0; i < DEEP; i += FEW_WIDTH) {
            FewPiece y = {};
            if (FEW_WIDTH > 1 && (WHOLE || i + FEW_WIDTH <= left)) y = *(const FewPiece*)(from + i);
            else
                #pragma unroll
                for (int l = 0; l < FEW_WIDTH; ++l)
                    if (WHOLE || i + l < left) y.x[l] = from[(i + l) * p.few_along];
            #pragma unroll
            for (int l = 0; l < FEW_WIDTH; ++l)
                #pragma unroll
                for (int j = 0; j < LINES; ++j)
                    sum[v][j] += x[i + l][j / WIDTH].x[j % WIDTH] * y.x[l];
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, RESIDENTS)
thin_real_mn_major(const __grid_constant__ Product p FUSED_PARAMETER) {
    __shared__ real parts[SPLIT > 1 ? WARPS : 1][SUMS][32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % SPLIT;
    const unsigned top = (blockIdx.x * (WARPS / SPLIT) + warp / SPLIT) * 32 * LINES;
    const unsigned begin = blockIdx.z * p.part_k;
    const unsigned end = blockIdx.z + 1 < gridDim.z ? begin + p.part_k : p.k;
    const unsigned first = begin + part * DEEP;
    begin_launch();
    for (unsigned batch = blockIdx.y; batch < p.batch; batch += gridDim.y) {
        const real* few = p.few + batch * p.few_step + first * p.few_along;
        const real* many[LINES / WIDTH];
        // Past the last line, that one is read again; its products are not stored.
        #pragma unroll
        for (int j = 0; j < LINES / WIDTH; ++j)
            many[j] = p.many + batch * p.many_step + first * p.many_pitch
                + min(top + line_of(lane, j * WIDTH), p.rows - WIDTH);
        real sum[FEW][LINES] = {};
        for (unsigned step = first; step < end; step += SPLIT * DEEP) {
            if (step + DEEP <= end) add_step<true>(sum, many, few, p, DEEP);
            else add_step<false>(sum, many, few, p, end - step);
            #pragma unroll
            for (int j = 0; j < LINES / WIDTH; ++j) many[j] += SPLIT * DEEP * p.many_pitch;
            few += SPLIT * DEEP * p.few_along;
        }
        auto store = [&](int number, real value) {
            const unsigned row = top + line_of(lane, number % LINES), other = number / LINES;
            if (row >= p.stored || other >= p.few_rows) return;
            value = epilogue(value, p.alpha, p.beta, [&] {
                return p.c[batch * p.c_step + row * p.c_many + other * p.c_few];
            });
            value = FUSED(value, batch, other, row);
            p.d[blockIdx.z * p.part_stride + batch * p.d_step + row * p.d_many + other * p.d_few] = value;
        };
        if (SPLIT == 1) {
            #pragma unroll
            for (int i = 0; i < SUMS; ++i) store(i, sum[i / LINES][i % LINES]);
            continue;
        }
        #pragma unroll
        for (int i = 0; i < SUMS; ++i) parts[warp][i][lane] = sum[i / LINES][i % LINES];
        __syncthreads();
        for (int i = part; i < SUMS; i += SPLIT) {
            real added = 0;
            #pragma unroll
            for (int j = 0; j < SPLIT; ++j) added += parts[warp - part + j][i][lane];
            store(i, added);
        }
        __syncthreads();  // before the next matrix's
    }
}
