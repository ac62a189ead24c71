// The caller's function of an epilogue: what becomes of alpha * accumulator + beta * C, element by
// element, with operands that broadcast over D.
//
// Macros, the first five or none: EPILOGUE, the body of the function, which returns the element of D from
// ``acc``, reads operands by OPERAND and stores results besides D by RESULT; EPILOGUE_INPUTS and
// EPILOGUE_RESULTS, an ARRAY for each array that it reads and stores; EPILOGUE_INSTRUCTIONS, about how many
// instructions an element takes; ``real``, the accumulator's type. A kernel takes the operands as its last
// argument, FUSED_PARAMETER, and calls FUSED, the function. PAIRS, 1 where D is a function of two products,
// ``gate`` and ``up``, of A and two matrices B; few kernels support it.
#pragma once
#include "../ptx/convert.cuh"

#ifndef PAIRS
#define PAIRS 0
#endif

#ifdef EPILOGUE
#include "functions.cuh"

constexpr bool FUSES = true;
#define FUSED_PARAMETER , const __grid_constant__ Fused fused
#define FUSED fused
#if PAIRS
#define FUSED_SUMS real gate, real up
#else
#define FUSED_SUMS real acc
#endif

// An operand, or a result besides D. Where it is the same for all rows (columns, matrices), that
// stride is 0.
struct Strided {
    void* pointer;
    long long row_stride, column_stride, batch_stride;  // elements
};
struct Scalar { double value; };

// How an element's address depends on its row, or its column.
enum Step { NOT, BY_ONE, BY_STRIDE };

struct Fused {
    Strided arrays[8];
    Scalar scalars[8];

    template <typename T, Step ROW, Step COLUMN>
    __device__ T* at(int i, unsigned batch, long long row, long long column) const {
        T* found = (T*)arrays[i].pointer + batch * arrays[i].batch_stride;
        if (ROW != NOT) found += ROW == BY_ONE ? row : row * arrays[i].row_stride;
        if (COLUMN != NOT) found += COLUMN == BY_ONE ? column : column * arrays[i].column_stride;
        return found;
    }
    // One element.
    __device__ real operator()(FUSED_SUMS, unsigned batch, long long row, long long column) const {
#define OPERAND(i, T, ROW, COLUMN) to_float(*at<T, ROW, COLUMN>(i, batch, row, column))
#define RESULT(i, T, ROW, COLUMN, value) *at<T, ROW, COLUMN>(i, batch, row, column) = from_float<T>(value)
        EPILOGUE
#undef OPERAND
#undef RESULT
    }
};
#else
constexpr bool FUSES = false;
#define FUSED_PARAMETER
#define FUSED Fused()

struct Fused {
    template <typename T> __device__ T operator()(T acc, unsigned, long long, long long) const { return acc; }
};
#endif
