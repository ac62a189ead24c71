// C and D of the Hopper kernels, and how a thread stores accumulators there.
//
// Macros: OUTPUT, the type of C and D; READ_C, 1 where beta is not 0; OUT_COLUMN_MAJOR, 1 where the
// columns of C and D are contiguous, and not the rows.
#pragma once
#include "../ptx/convert.cuh"
#include "epilogue.cuh"

#ifndef OUTPUT
#define OUTPUT bfloat16
#endif
#ifndef READ_C
#define READ_C 1
#endif
#ifndef OUT_COLUMN_MAJOR
#define OUT_COLUMN_MAJOR 0
#endif

constexpr bool OUT_FLOAT = sizeof(OUTPUT) == 4;
static_assert(!PAIRS || !READ_C, "of pairs, there is no C");

struct Out {
    int m, n;
    float alpha, beta;
    const void* c;
    u64 ldc, c_step;
    void* d;
    u64 ldd, d_step;
};

__device__ inline Out of_batch(Out out, int batch) {
    out.c = (const char*)out.c + batch * out.c_step * sizeof(OUTPUT);
    out.d = (char*)out.d + batch * out.d_step * sizeof(OUTPUT);
    return out;
}

// Whether C is added where elements are stored: with a caller's function that is done before (hopper_fused.cuh).
constexpr bool ADDS_C = READ_C && !FUSES;

__device__ inline void store_two(float* to, float x, float y) { *(float2*)to = make_float2(x, y); }
template <typename T> __device__ inline void store_two(T* to, float x, float y) {
    *(u32*)to = pack_pair<T>(x, y);
}

// How what a caller's function returned is stored: it is scaled already.
__device__ inline Out for_stores(Out out) {
    if (FUSES) out.alpha = 1;
    return out;
}

// One element of D from a scaled accumulator.
__device__ inline void store_one(float x, u64 row, u64 column, const Out& out) {
    if (ADDS_C) {
        u64 from = OUT_COLUMN_MAJOR ? column * out.ldc + row : row * out.ldc + column;
        x = plus_c(x, out.beta, to_float(((const OUTPUT*)out.c)[from]));
    }
    u64 at = OUT_COLUMN_MAJOR ? column * out.ldd + row : row * out.ldd + column;
    ((OUTPUT*)out.d)[at] = from_float<OUTPUT>(x);
}

// Two accumulators that are neighbours in a row; by one store where that is possible.
__device__ inline void store_pair(float x, float y, int row, int column, const Out& out) {
    if (row >= out.m || column >= out.n) return;
    x = scaled(x, out.alpha);
    y = scaled(y, out.alpha);
    if (!OUT_COLUMN_MAJOR && !ADDS_C && column + 1 < out.n) {
        char* to = (char*)out.d + (row * out.ldd + column) * sizeof(OUTPUT);
        if ((u64)to % (OUT_FLOAT ? 8 : 4) == 0) {
            store_two((OUTPUT*)to, x, y);
            return;
        }
    }
    store_one(x, row, column, out);
    if (column + 1 < out.n) store_one(y, row, column + 1, out);
}
