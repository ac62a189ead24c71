#pragma once
#include "../ptx/grid.cuh"

// How a kernel begins that may be launched before the one ahead of it has ended.
//
// Macro: OVERLAP, 1 if it may be (compute capability 9.0 or above), else 0.

// Until here nothing is read or written that the kernels ahead write or read.
__device__ inline void begin_launch() {
#if OVERLAP
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
#endif
}
