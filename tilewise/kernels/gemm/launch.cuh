#pragma once
#include "../ptx/grid.cuh"

// How a kernel begins that may start before the kernel ahead of it in the stream has ended
// (programmatic dependent launch).
//
// Macro: OVERLAP, 1 if it may (compute capability 9.0 or above), else 0.

// Before this call, nothing may be touched that the kernels ahead write or read.
__device__ inline void begin_launch() {
#if OVERLAP
    griddepcontrol_wait();
    griddepcontrol_launch_dependents();
#endif
}
