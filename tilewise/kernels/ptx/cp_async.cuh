// Asynchronous copies from global to shared memory by each thread (compute capability 8.0).
#pragma once
#include "../ptx/types.cuh"

// PTX ISA 9.7.9.25.3.1, cp.async.

// BYTES bytes (4, 8 or 16), or zeros where not ``is_inside``: then ``from`` is not read.
template <int BYTES, typename T>
__device__ inline void cp_async(T* to, const T* from, bool is_inside = true) {
    const unsigned at = __cvta_generic_to_shared(to);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(is_inside ? 16 : 0) : "memory");
    } else {  // L2 fetches 128 bytes: neighbouring elements are asked for next
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(BYTES), "r"(is_inside ? BYTES : 0) : "memory");
    }
}

// BYTES bytes (4, 8 or 16), or zeros where ``is_missing``, by a predicate.
template <int BYTES = 16> __device__ inline void cp_async_unless(u32 to, u64 from, bool is_missing) {
    if constexpr (BYTES == 16) {
        asm volatile("{ .reg .pred missing;\n"
                     "setp.ne.b32 missing, %2, 0;\n"
                     "cp.async.cg.shared.global [%0], [%1], 16, missing; }" ::"r"(to), "l"(from), "r"((int)is_missing) : "memory");
    } else {
        asm volatile("{ .reg .pred missing;\n"
                     "setp.ne.b32 missing, %2, 0;\n"
                     "cp.async.ca.shared.global.L2::128B [%0], [%1], %3, missing; }" ::"r"(to), "l"(from), "r"((int)is_missing), "n"(BYTES) : "memory");
    }
}

// BYTES bytes (4, 8 or 16), of which the first ``bytes`` are read and the others are zeros.
template <int BYTES = 16> __device__ inline void cp_async_some(u32 to, u64 from, int bytes) {
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
    }
}

__device__ inline void cp_async_commit_group() {  // 9.7.9.25.3.2
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// 9.7.9.25.3.3: until all but this thread's last N groups have arrived.
template <int N> __device__ inline void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
