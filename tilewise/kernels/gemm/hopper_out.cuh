// C and D of the Hopper kernels, and how a thread stores accumulators there.
//
// Macro: INPUT, the type of A and B, and of C and D where they are not float.
//
// How D lies and what it is made of are arguments: all products of a tiling share one kernel.
#pragma once
#include "../ptx/convert.cuh"
#include "epilogue.cuh"

#ifndef INPUT
#define INPUT bfloat16
#endif

struct Out {
    int m, n;
    float alpha, beta;
    const void* c;
    u64 ldc, c_step;
    void* d;
    u64 ldd, d_step;
    int is_float;         // C and D are float, and not INPUT
    int is_column_major;  // their columns are contiguous, and not their rows
    int reads_c;          // beta is not 0
    int by_tma;           // TMA stores D: lines of whole 16 bytes, 16-byte aligned, beta 0

    __device__ int item_bytes() const { return is_float ? sizeof(float) : sizeof(INPUT); }
};

__device__ inline Out of_batch(Out out, int batch) {
    out.c = (const char*)out.c + batch * out.c_step * out.item_bytes();
    out.d = (char*)out.d + batch * out.d_step * out.item_bytes();
    return out;
}

// One element of D from a scaled accumulator.
__device__ inline void store_one(float x, u64 row, u64 column, const Out& out) {
    u64 line = out.is_column_major ? column : row, at = out.is_column_major ? row : column;
    if (out.reads_c) {
        u64 from = line * out.ldc + at;
        x = plus_c(x, out.beta, out.is_float ? ((const float*)out.c)[from]
                                             : to_float(((const INPUT*)out.c)[from]));
    }
    u64 to = line * out.ldd + at;
    if (out.is_float) {
        ((float*)out.d)[to] = x;
    } else {
        ((INPUT*)out.d)[to] = from_float<INPUT>(x);
    }
}

// Two accumulators that are neighbours in a row; by one store where that is possible.
__device__ inline void store_pair(float x, float y, int row, int column, const Out& out) {
    if (row >= out.m || column >= out.n) return;
    x = scaled(x, out.alpha);
    y = scaled(y, out.alpha);
    if (!out.is_column_major && !out.reads_c && column + 1 < out.n) {
        char* to = (char*)out.d + (row * out.ldd + column) * out.item_bytes();
        if ((u64)to % (2 * out.item_bytes()) == 0) {
            if (out.is_float) {
                *(float2*)to = make_float2(x, y);
            } else {
                *(u32*)to = pack_pair<INPUT>(x, y);
            }
            return;
        }
    }
    store_one(x, row, column, out);
    if (column + 1 < out.n) store_one(y, row, column + 1, out);
}
