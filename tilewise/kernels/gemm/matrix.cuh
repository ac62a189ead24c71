// Views of matrices in global memory, with any strides (in elements).
#pragma once

template <typename T> struct Matrix {
    T* pointer;
    long long row_stride, column_stride;
    __device__ T* at(unsigned row, unsigned column) const {
        return pointer + row * row_stride + column * column_stride;
    }
};

template <typename T> struct BatchedMatrix {
    T* pointer;
    long long row_stride, column_stride, batch_stride;
    __device__ Matrix<T> operator[](unsigned i) const {
        return {pointer + i * batch_stride, row_stride, column_stride};
    }
};
