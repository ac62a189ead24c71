// What the kernels of float and double need to have tiles brought by bulk copies (TMA).
#pragma once
#include "../ptx/mbarrier.cuh"
#include "../ptx/shared.cuh"
#include "../ptx/tma.cuh"

// One of the matrices that a tensor map describes.
struct MapMatrix {
    const TensorMap& map;
    int number;
};
