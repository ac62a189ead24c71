#pragma once

// Elements of a matrix, wherever they lie; strides are in elements.
template <typename T> struct Elements {
    T* pointer;
    long long row_stride, column_stride;
    __device__ T* at(unsigned row, unsigned column) const {
        return pointer + row * row_stride + column * column_stride;
    }
};

// Of a batch.
template <typename T> struct Batch {
    Elements<T> first;
    long long stride;
    __device__ Elements<T> operator[](unsigned i) const {
        return {first.pointer + i * stride, first.row_stride, first.column_stride};
    }
};
