// The caller's function of an epilogue (fused.cuh) on accumulators as wgmma leaves them in a warp.
//
// A thread has accumulators of two rows, 8 apart, and of two neighbouring columns of every 8
// (hopper_store.cuh). It takes ``Q`` groups of 8 columns at a time. An operand that is the same for several
// elements is read once for them, and two neighbours in a row are read by one access where they are aligned.
// Rows and columns past D's edge are clamped to D's last ones, so that no element's loads need a branch.
#pragma once
#include "../ptx/memory.cuh"
#include "hopper_out.cuh"

#ifndef INTERLEAVED
#define INTERLEAVED 0
#endif
#ifndef STAGED
#define STAGED -1
#endif
#ifndef STAGED_APART
#define STAGED_APART 0
#endif

#ifdef EPILOGUE

// The distance between a thread's two columns of D. Where gate and up are interleaved, they are not neighbours.
constexpr int APART = INTERLEAVED ? 4 : 1;

// Where a thread's elements lie in D: rows ``row`` and ``row`` + 8; columns ``column`` + 8 q and
// ``column`` + 8 q + APART.
struct Spot {
    unsigned batch;
    int row, column, m, n;
};

// Two neighbours in a row, as they lie in memory.
template <typename T, int BYTES = sizeof(T)> struct alignas(2 * sizeof(T)) Two {
    T first, second;
    __device__ T get(int e) const { return e ? second : first; }
    __device__ void set(int e, T x) { (e ? second : first) = x; }
};
template <typename T> struct Two<T, 2> {
    u32 bits;
    __device__ T get(int e) const { return T{(u16)(e ? bits >> 16 : bits)}; }
    __device__ void set(int e, T x) {
        bits = e ? bits & 0xffff | (u32)x.bits << 16 : bits & 0xffff0000 | x.bits;
    }
};

// A thread's elements of an operand, or of a result.
template <typename T, Step ROW, Step COLUMN, int Q> struct Fragment {
    static constexpr int LINES = ROW == NOT ? 1 : 2, BLOCKS = COLUMN == NOT ? 1 : Q;
    Two<T> x[LINES][BLOCKS];

    static __device__ T* line(const Strided& array, const Spot& at, int l) {
        T* found = (T*)array.pointer + at.batch * array.batch_stride;
        if (ROW == NOT) return found;
        const int row = min(at.row + 8 * l, at.m - 1);
        return found + (ROW == BY_ONE ? row : row * array.row_stride);
    }
    // Whether all columns are inside D, and two neighbours in a row are one aligned word.
    static __device__ bool is_whole(T* const (&lines)[LINES], const Spot& at) {
        // A group's first column may be odd (hopper_grouped.cu).
        const u64 bits = (u64)lines[0] | (u64)lines[LINES - 1] | at.column * sizeof(T);
        return APART == 1 && COLUMN == BY_ONE && at.column + 8 * (Q - 1) + 1 < at.n && bits % sizeof(Two<T>) == 0;
    }
    static __device__ long long offset(const Strided& array, int column) {
        return COLUMN == BY_ONE ? column : column * array.column_stride;
    }

    __device__ void load(const Strided& array, const Spot& at) {
        T* lines[LINES];
#pragma unroll
        for (int l = 0; l < LINES; ++l) lines[l] = line(array, at, l);
        if (COLUMN == NOT) {
#pragma unroll
            for (int l = 0; l < LINES; ++l) x[l][0].set(0, *lines[l]);
        } else if (is_whole(lines, at)) {
#pragma unroll
            for (int l = 0; l < LINES; ++l) {
#pragma unroll
                for (int q = 0; q < BLOCKS; ++q) x[l][q] = *(const Two<T>*)(lines[l] + at.column + 8 * q);
            }
        } else {
#pragma unroll
            for (int q = 0; q < BLOCKS; ++q) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const long long along = offset(array, min(at.column + 8 * q + APART * e, at.n - 1));
#pragma unroll
                    for (int l = 0; l < LINES; ++l) x[l][q].set(e, lines[l][along]);
                }
            }
        }
    }

    __device__ void store(const Strided& array, const Spot& at) const {
        T* lines[LINES];
#pragma unroll
        for (int l = 0; l < LINES; ++l) lines[l] = line(array, at, l);
        const bool is_word = is_whole(lines, at);
#pragma unroll
        for (int l = 0; l < LINES; ++l) {
            if (at.row + 8 * l >= at.m) continue;
#pragma unroll
            for (int q = 0; q < BLOCKS; ++q) {
                if (is_word) {
                    *(Two<T>*)(lines[l] + at.column + 8 * q) = x[l][q];
                    continue;
                }
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int column = at.column + 8 * q + APART * e;
                    if (column < at.n) lines[l][offset(array, column)] = x[l][q].get(e);
                }
            }
        }
    }

    __device__ void take(int q, const u32 (&pairs)[4]) {
#pragma unroll
        for (int r = 0; r < 4; ++r) x[r % 2][q + r / 2].bits = pairs[r];
    }

    __device__ T get(int l, int q, int e) const {
        return x[ROW == NOT ? 0 : l][COLUMN == NOT ? 0 : q].get(COLUMN == NOT ? 0 : e);
    }
    __device__ void set(int l, int q, int e, T value) { x[l][q].set(e, value); }
};

constexpr Step step_of_result(Step step) { return step == NOT ? BY_STRIDE : step; }

// What a thread reads for the function: its operands, and C. Two operands are not loaded from global memory here:
// STAGED is taken from shared memory, and KEPT from registers (hopper_finish.cuh); each is -1 if there is none.
template <int Q, int KEPT = -1> struct Operands {
#define ARRAY(i, T, ROW, COLUMN) Fragment<T, ROW, COLUMN, Q> array##i;
    EPILOGUE_INPUTS
#if READ_C
    Fragment<OUTPUT, OUT_COLUMN_MAJOR ? BY_ONE : BY_STRIDE, OUT_COLUMN_MAJOR ? BY_STRIDE : BY_ONE, Q> c;
#endif
#undef ARRAY

    __device__ void load(const Fused& fused, const Out& out, const Spot& at) {
#define ARRAY(i, T, ROW, COLUMN) \
    if (i != STAGED && i != KEPT) array##i.load(fused.arrays[i], at);
        EPILOGUE_INPUTS
#undef ARRAY
#if READ_C
        // Out is of the batch's matrix already.
        c.load(Strided{(void*)out.c, (long long)out.ldc, (long long)out.ldc, 0}, at);
#endif
    }

    // Takes what ldmatrix read of the staged operand: 16 columns, those of groups ``q`` and ``q`` + 1.
    __device__ void take_staged(int q, const u32 (&pairs)[4]) {
#define ARRAY(i, T, ROW, COLUMN) \
    if constexpr (i == STAGED) array##i.take(q, pairs);
        EPILOGUE_INPUTS
#undef ARRAY
    }
    // Takes a pair of the operand that registers keep.
    __device__ void take_kept(int q, u32 pair) {
#define ARRAY(i, T, ROW, COLUMN) \
    if constexpr (i == KEPT) array##i.x[0][q].bits = pair;
        EPILOGUE_INPUTS
#undef ARRAY
    }
};

// Replaces the accumulators ``x`` by the elements of D. With PAIRS, ``x`` holds gate's accumulators and
// ``up`` those of up. Both are in the order of wgmma's registers: q, then the row, then the column.
template <int Q> struct Function {
#define ARRAY(i, T, ROW, COLUMN) Fragment<T, step_of_result(ROW), step_of_result(COLUMN), Q> array##i;
    EPILOGUE_RESULTS
#undef ARRAY

#define OPERAND(i, T, ROW, COLUMN) to_float(operands.array##i.get(l, q, e))
#define RESULT(i, T, ROW, COLUMN, value) array##i.set(l, q, e, from_float<T>(value))
    template <typename AnyOperands>
    __device__ float element(FUSED_SUMS, const AnyOperands& operands, const Scalar* scalars, int l,
                             int q, int e) {
        EPILOGUE
    }
#undef OPERAND
#undef RESULT

    template <typename AnyOperands>
    __device__ void operator()(float (&x)[4 * Q], const float* up, const AnyOperands& operands,
                               const Fused& fused, const Out& out, const Spot& at) {
#pragma unroll
        for (int j = 0; j < 4 * Q; ++j) {
            const int q = j / 4, l = j / 2 % 2, e = j % 2;
            float sum = scaled(x[j], out.alpha);
#if READ_C
            sum = plus_c(sum, out.beta, to_float(operands.c.get(l, q, e)));
#endif
#if PAIRS
            x[j] = element(sum, scaled(up[j], out.alpha), operands, fused.scalars, l, q, e);
#else
            x[j] = element(sum, operands, fused.scalars, l, q, e);
#endif
        }
#define ARRAY(i, T, ROW, COLUMN) array##i.store(fused.arrays[i], at);
        EPILOGUE_RESULTS
#undef ARRAY
    }
};

#endif
