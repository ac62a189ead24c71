#pragma once

// How a kernel begins that may be launched before the one ahead of it has ended.
//
// Macro: OVERLAP, 1 if it may be (compute capability 9.0 or above), else 0.

// Until here nothing is read or written that the kernels ahead write or read.
__device__ inline void begin_launch() {
#if OVERLAP
    // PTX ISA 9.7.13.13, "griddepcontrol".
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
