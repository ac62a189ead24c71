// Barriers of a part of a block's warps (PTX ISA 9.7.13.1, barrier.sync).
#pragma once

// Waits for THREADS threads, whole warps, at the barrier of that number: 1 to 15. __syncthreads is 0.
template <int THREADS> __device__ inline void named_barrier_sync(int number) {
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(number), "n"(THREADS) : "memory");
}
