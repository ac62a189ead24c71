// Kernels in a stream that overlap, and registers that warpgroups trade (compute capability 9.0).
#pragma once

// PTX ISA 9.7.13.13, griddepcontrol: until the kernels ahead in the stream have ended and what they
// wrote is visible. Before it, nothing may be touched that they read or write.
__device__ inline void griddepcontrol_wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The next kernel in the stream may start once every block has called this or ended.
__device__ inline void griddepcontrol_launch_dependents() {
    asm volatile("griddepcontrol.launch_dependents;");
}

// 9.7.20.5, setmaxnreg: registers of each thread of this warpgroup.
template <int N> __device__ inline void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ inline void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
