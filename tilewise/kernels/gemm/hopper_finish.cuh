// Applies the caller's function of an epilogue to a tile's accumulators, before the stores or as part of them.
//
// A step applies the function to FUSED_BLOCKS groups of 8 columns. The loop over the steps is unrolled only where
// the function is short and no step loads an operand. A tile runs unrolled code just once, so that fetching the
// instructions of a longer function would take more time than running them.
//
// 16-bit elements that TMA stores go from the function straight to the warp's buffers (finish_by_tma). Two of the
// operands are then on chip when the mainloop ends, so that the function does not wait for global memory:
//
// - the staged operand, a matrix, is in shared memory, from which D is then stored (hopper_staged.cuh);
// - the kept operand, the first that is a row of 16-bit elements, is in registers, and shuffles give each lane its
//   own elements.
#pragma once
#include "hopper_staged.cuh"

#ifdef EPILOGUE
// Whether elements of D go from the function straight to the buffers of TMA's stores.
constexpr bool THROUGH_BUFFERS = TMA_OUT && !OUT_FLOAT;
constexpr int BOX_COLUMNS = THROUGH_BUFFERS ? OUT_COLUMNS : OUT_N;

// The operand that registers keep, the first of 16-bit rows, or -1.
constexpr int kept_operand() {
    int found = -1;
#define ARRAY(i, T, ROW, COLUMN) \
    if (found < 0 && sizeof(T) == 2 && ROW == NOT && COLUMN == BY_ONE) found = i;
    EPILOGUE_INPUTS
#undef ARRAY
    return found;
}
constexpr int KEPT = THROUGH_BUFFERS && !INTERLEAVED ? kept_operand() : -1;

// Whether no step accesses global memory: all operands are staged or kept, and D is the only result.
constexpr bool loads_nothing() {
    bool found = true;
#define ARRAY(i, T, ROW, COLUMN) found = found && (i == STAGED || i == KEPT);
    EPILOGUE_INPUTS
    EPILOGUE_RESULTS
#undef ARRAY
    return found;
}
// Whether the loop over the steps is unrolled, so that a step's accumulators need no copy. For a function longer
// than GELU, unrolling is not worth the time to compile it.
constexpr bool IS_UNROLLED = THROUGH_BUFFERS && EPILOGUE_INSTRUCTIONS <= 20 && loads_nothing();

// FUSED_BLOCKS is 4 where the registers hold the operands of two steps beside the accumulators. (A thread
// has 152 registers or more; 232 with large accumulators.)
constexpr int MOST_FUSED =
    (CONSUMERS == 3 || HAS_UNALIGNED || sizeof(Sums) <= 96 * sizeof(float) ? 116 : 188) * sizeof(float);
constexpr int FUSED_BLOCKS =
    BOX_COLUMNS % 32 == 0 && !PAIRS && sizeof(Sums) + 2 * sizeof(Operands<4>) <= MOST_FUSED ? 4 : 2;
constexpr int FUSED_PARTS = OUT_N / (8 * FUSED_BLOCKS), FUSED_STEPS = ROWS / 64 * FUSED_PARTS;

// Copies the accumulators of a step to ``x``, or back. Registers can't be indexed, so branches select the
// step.
template <bool BACK, int FROM = 0, int TO = FUSED_STEPS, int COUNT>
__device__ inline void copy_sums(Sums& sum, int first, int step, float (&x)[COUNT]) {
    if constexpr (TO - FROM == 1) {
        float* there = sum[FROM / FUSED_PARTS] + first + FROM % FUSED_PARTS * COUNT;
#pragma unroll
        for (int j = 0; j < COUNT; ++j) {
            // Without asm the compiler would select each value from those of all steps.
            if (BACK) asm volatile("mov.b32 %0, %1;" : "=f"(there[j]) : "f"(x[j]));
            else asm volatile("mov.b32 %0, %1;" : "=f"(x[j]) : "f"(there[j]));
        }
    } else {
        constexpr int MIDDLE = (FROM + TO) / 2;
        if (step < MIDDLE) copy_sums<BACK, FROM, MIDDLE>(sum, first, step, x);
        else copy_sums<BACK, MIDDLE, TO>(sum, first, step, x);
    }
}

// Computes a step's elements of D, in the order of wgmma's registers, from the accumulators.
template <typename AnyOperands>
__device__ inline void finish_step(Sums& sum, int step, const AnyOperands& operands, const Spot& at, const Out& out,
                                   const Fused& fused, float (&x)[4 * FUSED_BLOCKS]) {
    float up[4 * FUSED_BLOCKS];
#if INTERLEAVED
    float both[8 * FUSED_BLOCKS];
    copy_sums<false>(sum, 0, step, both);
#pragma unroll
    for (int j = 0; j < 4 * FUSED_BLOCKS; ++j) {
        const int from = j / 4 * 8 + j / 2 % 2 * 2 + j % 2 * 4;
        x[j] = both[from], up[j] = both[from + 1];
    }
#else
    copy_sums<false>(sum, 0, step, x);
    if (PAIRS) copy_sums<false>(sum, OUT_N / 2, step, up);
#endif
    Function<FUSED_BLOCKS>()(x, up, operands, fused, out, at);
#if INTERLEAVED
    // Of each 8 columns of D, lane t of four has columns t and t + 4, and needs columns 2 t and 2 t + 1.
    // Two shuffles among the four lanes exchange them.
    const int t = threadIdx.x % 4;
    const int of_four = threadIdx.x % 32 - t, from_first = of_four + (t / 2 | t % 2 * 2);
    const int from_second = of_four + ((t / 2 | t % 2 * 2) ^ 1);
#pragma unroll
    for (int j = 0; j < 4 * FUSED_BLOCKS; j += 2) {
        const float first = __shfl_sync(~0u, t % 2 ? x[j + 1] : x[j], from_first);
        const float second = __shfl_sync(~0u, t % 2 ? x[j] : x[j + 1], from_second);
        x[j] = t < 2 ? first : second;
        x[j + 1] = t < 2 ? second : first;
    }
#endif
}

// The coordinates in D of a step's elements, from those of the thread's first element.
struct Spots {
    Spot first;

    __device__ Spots(int row, int column, const Out& out, unsigned batch)
        : first{batch, row, INTERLEAVED ? column - (int)threadIdx.x % 4 : column, out.m, out.n} {}
    __device__ Spot operator()(int step) const {
        Spot at = first;
        at.row += 64 * (step / FUSED_PARTS);
        at.column += 8 * FUSED_BLOCKS * (step % FUSED_PARTS);
        return at;
    }
};

// Replaces accumulators by the elements of D that the caller's function computes from them; with PAIRS, only
// the first half of the accumulators is replaced. ``row`` and ``column`` are the coordinates in D of the
// thread's first element. The operands of a step are loaded one step ahead.
__device__ inline void finish(Sums& sum, int row, int column, const Out& out, unsigned batch,
                              const Fused& fused) {
    const Spots spots(row, column, out, batch);
    Operands<FUSED_BLOCKS> next;
    next.load(fused, out, spots(0));
#pragma unroll 1
    for (int step = 0; step < FUSED_STEPS; ++step) {
        const Operands<FUSED_BLOCKS> operands = next;
        if (step + 1 < FUSED_STEPS) next.load(fused, out, spots(step + 1));
        float x[4 * FUSED_BLOCKS];
        finish_step(sum, step, operands, spots(step), out, fused, x);
        copy_sums<true>(sum, 0, step, x);
    }
}

// A warp's boxes of D: 16 rows, BOX_COLUMNS columns. ``row`` and ``column`` are the coordinates of the first one.
struct Boxes {
    static constexpr int PARTS = OUT_N / BOX_COLUMNS;
    static constexpr int PIECES = (OUT_COLUMN_MAJOR ? 16 : BOX_COLUMNS) / 8;  // of 16 bytes, of a line
    u32 buffers;
    int lane, row, column;
    unsigned batch;

    __device__ int row_of(int box) const { return row + 64 * (box / PARTS); }
    __device__ int column_of(int box) const { return column + BOX_COLUMNS * (box % PARTS); }

    // The address in a buffer of what a lane's stmatrix of 16 columns stores, or ldmatrix reads.
    __device__ u32 address(u32 buffer, int sixteen) const {
        if (OUT_COLUMN_MAJOR) {
            return buffer + swizzled<PIECES>(16 * sixteen + lane / 16 * 8 + lane % 8, lane / 8 % 2);
        }
        return buffer + swizzled<PIECES>(lane % 16, 2 * sixteen + lane / 16);
    }
};

// A warp's share of the row that registers keep: lane l has columns 64 i + 2 l and the next, for each i.
struct KeptRow {
    static constexpr int COUNT = KEPT < 0 ? 1 : (OUT_N + 63) / 64;
    u32 pairs[COUNT];

    __device__ void load(const Fused& fused, unsigned batch, int column, const Out& out, int lane) {
        if constexpr (KEPT >= 0) {
            const Strided& array = fused.arrays[KEPT];
            const u16* row = (const u16*)array.pointer + batch * array.batch_stride;
            // Where pairs are aligned, each is loaded as one word: nothing waits for it before the function needs it.
            const bool is_word = ((u64)row | 2 * (out.n | column)) % 4 == 0;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const int at = column + 64 * i + 2 * lane;
                if (is_word) {
                    pairs[i] = *(const u32*)(row + min(at, out.n - 2));
                } else {
                    pairs[i] = row[min(at, out.n - 1)] | (u32)row[min(at + 1, out.n - 1)] << 16;
                }
            }
        }
    }
    // The elements of the thread's two columns, of the tile's group ``block`` of 8 columns.
    __device__ u32 pair(int block, int lane) const {
        u32 x = pairs[0];
#pragma unroll
        for (int i = 1; i < COUNT; ++i) {
            if (IS_UNROLLED) {
                if (block / 8 == i) x = pairs[i];
            } else {  // by asm, because the compiler would put the array to local memory to index it
                asm("{ .reg .pred is_it; setp.eq.s32 is_it, %1, %2; selp.b32 %0, %3, %0, is_it; }"
                    : "+r"(x) : "r"(block / 8), "r"(i), "r"(pairs[i]));
            }
        }
        return __shfl_sync(~0u, x, block % 8 * 4 + lane % 4);
    }
};

// Computes the elements of D and stores them by TMA, box by box: with a staged operand from the place where it has
// landed, which ``free`` and ``release`` then release (StagedTile::leave), and otherwise through the warp's two
// buffers in turn, of which ``next`` is the one to fill first. ``of_tile`` is Out for the tile's matrix of a batch.
template <class Release>
__device__ inline void finish_by_tma(Sums& sum, const Boxes& boxes, const TensorMap& map, const Out& of_tile,
                                     const Fused& fused, const KeptRow& kept, const StagedTile& staged, int consumer,
                                     int thread, u32 free, Release release, u32& next) {
    constexpr int Q = FUSED_BLOCKS, STEPS = BOX_COLUMNS / (8 * Q);  // of a box
    const int lane = boxes.lane, warp = thread / 32;
    const Spots spots(boxes.row + lane / 4, boxes.column + lane % 4 * 2, of_tile, boxes.batch);
    Operands<Q, KEPT> ahead;
    ahead.load(fused, of_tile, spots(0));
#pragma unroll(IS_UNROLLED ? FUSED_STEPS : 1)
    for (int step = 0; step < FUSED_STEPS; ++step) {
        const int box = step / STEPS, of_box = step % STEPS;
        const u32 buffer = STAGED < 0 ? boxes.buffers + next * OUT_BYTES : staged.buffer(box, warp);
        if (STAGED < 0 && of_box == 0) {
            if (lane == 0) tma_store_wait_group_read<1>();
            __syncwarp();
        }
        Operands<Q, KEPT> operands = ahead;
        if (step + 1 < FUSED_STEPS) ahead.load(fused, of_tile, spots(step + 1));
        if constexpr (STAGED >= 0) {
#pragma unroll
            for (int q = 0; q < Q; q += 2) {
                u32 x[4];
                ldmatrix_x4<OUT_COLUMN_MAJOR>(x, boxes.address(buffer, (Q * of_box + q) / 2));
                operands.take_staged(q, x);
            }
            __syncwarp();
        }
        if constexpr (KEPT >= 0) {
#pragma unroll
            for (int q = 0; q < Q; ++q) {
                operands.take_kept(q, kept.pair(step % FUSED_PARTS * Q + q, lane));
            }
        }
        float x[4 * Q];
        finish_step(sum, step, operands, spots(step), of_tile, fused, x);
#pragma unroll
        for (int q = 0; q < Q; q += 2) {
            u32 pairs[4];
            pack_pairs(x + 4 * q, 1, pairs);
            stmatrix_x4<OUT_COLUMN_MAJOR>(boxes.address(buffer, (Q * of_box + q) / 2), pairs);
        }
        if (of_box == STEPS - 1) {
            fence_proxy_async();
            __syncwarp();
            if (lane == 0) {
                const int row = boxes.row_of(box), column = boxes.column_of(box);
                tma_store(map, buffer, OUT_COLUMN_MAJOR ? row : column, OUT_COLUMN_MAJOR ? column : row,
                          boxes.batch);
                tma_store_commit_group();
            }
            next ^= 1;
            if (STAGED >= 0) staged.leave(box, consumer, thread, free, release);
        }
    }
}
#endif
