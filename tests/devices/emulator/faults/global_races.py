"""Races in global memory, and kernels that have none because flags and tickets order them."""

from __future__ import annotations

from faults.cases import cases

FAULTS = r"""
== neighbours_in_a_block
    out[t] = a[t];
    out[t + 100] = out[63 - t];  // fault
== blocks_read_their_neighbours grid=4
    int i = blockIdx.x * 64 + t;
    out[i] = a[i];
    __syncthreads();
    out[1000 + i] = out[(i + 64) & 255];  // fault
== in_place_stencil grid=2
    int i = blockIdx.x * 64 + t;
    int x = out[i + 1];
    out[i] = x + 1;  // fault
== in_place_stencil_with_a_barrier grid=2
    int i = blockIdx.x * 64 + t;
    int x = out[i + 1];
    __syncthreads();
    out[i] = x + 1;  // fault
== blocks_write_one_place grid=3
    if (t == 0) out[5] = blockIdx.x;  // fault
== threads_write_one_place
    out[5] = t;  // fault
== warps_write_one_place
    if (t < 32) out[t] = a[t];
    if (t >= 32) out[t - 32] = a[t];  // fault
== sum_without_atomics grid=3
    out[t] += a[t] * 2;  // fault
== global_histogram_without_atomics grid=2
    out[a[t] & 7] += 1;  // fault
== global_atomic_and_plain_read grid=2
    atomicAdd(out + 3, 1);
    out[100 + blockIdx.x * 64 + t] = out[3];  // fault
== global_atomic_and_plain_write grid=2
    atomicAdd(out + 3, 1);
    if (t == 0 && blockIdx.x == 1) out[3] = 0;  // fault
== counter_cleared_by_one_block grid=2
    if (blockIdx.x == 0 && t == 0) out[3] = 0;
    atomicAdd(out + 3, 1);  // fault
== ticket_without_fence grid=4
    __shared__ bool is_last;
    if (t == 0) {
        out[blockIdx.x] = a[blockIdx.x];
        is_last = atomicAdd(out + 100, 1) == 3;
    }
    __syncthreads();
    if (is_last && t < 4) out[200 + t] = out[t];  // fault
== ticket_before_the_results grid=4
    __shared__ bool is_last;
    if (t == 0) {
        __threadfence();
        is_last = atomicAdd(out + 100, 1) == 3;
        out[blockIdx.x] = a[blockIdx.x];
    }
    __syncthreads();
    if (is_last && t < 4) out[200 + t] = out[t];  // fault
== ticket_before_the_block_s_barrier grid=4
    __shared__ bool is_last;
    out[blockIdx.x * 64 + t] = a[t];
    __threadfence();
    if (t == 0) is_last = atomicAdd(out + 1000, 1) == 3;
    __syncthreads();
    if (is_last) out[2000 + t] = out[t * 4];  // fault
== flag_without_fence grid=2
    volatile int* flag = out + 100;
    if (blockIdx.x == 0 && t == 0) {
        out[0] = a[7];
        *flag = 1;
    }
    if (blockIdx.x == 1 && t == 0) {
        while (*flag == 0) {}
        out[1] = out[0];  // fault
    }
== flag_before_the_value grid=2
    volatile int* flag = out + 100;
    if (blockIdx.x == 0 && t == 0) {
        __threadfence();
        *flag = 1;
        out[0] = a[7];
    }
    if (blockIdx.x == 1 && t == 0) {
        while (*flag == 0) {}
        out[1] = out[0];  // fault
    }
== another_flag_is_waited_for grid=2
    volatile int* flag = out + 100;
    if (blockIdx.x == 0 && t == 0) {
        flag[1] = 1;
        out[0] = a[7];
        __threadfence();
        flag[0] = 1;
    }
    if (blockIdx.x == 1 && t == 0) {
        while (flag[1] == 0) {}
        out[1] = out[0];  // fault
    }
== plain_flag grid=2
    if (blockIdx.x == 0 && t == 0) {
        out[0] = a[7];
        __threadfence();
        out[100] = 1;
    }
    if (blockIdx.x == 1 && t == 0 && *(volatile int*)(out + 100))  // fault
        out[1] = 1;
== release_without_acquire grid=2
    if (blockIdx.x == 0 && t == 0) {
        out[0] = a[7];
        RELEASE(out + 100, 1);
    }
    if (blockIdx.x == 1 && t == 0) out[1] = out[0];  // fault
== relaxed_in_place_of_release grid=2
    if (blockIdx.x == 0 && t == 0) {
        out[0] = a[7];
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(out + 100), "r"(1) : "memory");
    }
    if (blockIdx.x == 1 && t == 0) {
        int x;
        do ACQUIRE(x, out + 100);
        while (x == 0);
        out[1] = out[0];  // fault
    }
== grid_barrier_without_fence grid=3
    out[blockIdx.x * 64 + t] = a[t];
    __syncthreads();
    if (t == 0) {
        atomicAdd(out + 1000, 1);
        while (*(volatile int*)(out + 1000) < 3) {}
    }
    __syncthreads();
    out[2000 + blockIdx.x * 64 + t] = out[(blockIdx.x * 64 + t + 64) % 192];  // fault
== named_barrier_of_a_half_for_global_memory
    out[t] = a[t];
    if (t < 32) BAR_SYNC(1, 32);
    out[100 + t] = out[t ^ 1];  // fault
== everybody_arrives_and_nobody_waits_for_global_memory
    out[t] = a[t];
    BAR_ARRIVE(1, 64);
    if (t < 32) {
        BAR_SYNC(1, 32);
        out[100 + t] = out[63 - t];  // fault
    }
== copy_of_what_another_block_writes grid=2
    __shared__ int s[64];
    if (blockIdx.x == 0) out[t] = a[t];  // fault
    if (blockIdx.x == 1) {
        COPY(&s[t], out + t);
        WAIT_ALL();
        out[100 + t] = s[t];
    }
== bulk_stores_of_two_blocks grid=2
    __shared__ alignas(128) int s[64];
    s[t] = a[t] + blockIdx.x;
    PROXY_FENCE();
    __syncthreads();
    if (t == 0) {
        BULK_STORE(out, s, 256);  // fault
        BULK_COMMIT();
        BULK_WAIT(0);
    }
"""

SOUND = r"""
== in_place grid=3
    int i = blockIdx.x * 64 + t;
    out[i] = out[i] * 2 + 1;
== through_a_barrier grid=2
    int i = blockIdx.x * 64;
    out[i + t] = a[t];
    __syncthreads();
    int x = out[i + 63 - t];
    __syncthreads();
    out[i + t] = x;
== atomics_only_global grid=3
    atomicAdd(out + (a[t] & 7), 1);
== same_flag_by_all_blocks grid=3
    if (a[t] > 60) out[7] = 1;
== halves_of_one_word grid=2
    ((char*)out)[blockIdx.x * 64 + t] = (char)a[t];
== ticket grid=4
    __shared__ bool is_last;
    if (t == 0) {
        out[blockIdx.x] = a[blockIdx.x];
        __threadfence();
        is_last = atomicAdd(out + 100, 1) == 3;
    }
    __syncthreads();
    if (is_last && t < 4) out[200 + t] = out[t];
== ticket_behind_a_barrier grid=4
    __shared__ bool is_last;
    out[blockIdx.x * 64 + t] = a[t];
    __syncthreads();
    if (t == 0) {
        __threadfence();
        is_last = atomicAdd(out + 1000, 1) == 3;
    }
    __syncthreads();
    if (is_last) out[2000 + t] = out[t * 4];
== ticket_with_everybody_s_fence grid=4
    __shared__ bool is_last;
    out[blockIdx.x * 64 + t] = a[t];
    __threadfence();
    __syncthreads();
    if (t == 0) is_last = atomicInc((unsigned*)out + 1000, 3) == 3;
    __syncthreads();
    if (is_last) out[2000 + t] = out[t * 4];
== flag_with_fences grid=2
    volatile int* flag = out + 100;
    if (blockIdx.x == 0 && t == 0) {
        out[0] = a[7];
        __threadfence();
        *flag = 1;
    }
    if (blockIdx.x == 1 && t == 0) {
        while (*flag == 0) {}
        __threadfence();
        out[1] = out[0];
    }
== flags_from_block_to_block grid=4
    volatile int* flag = out + 100;
    if (t == 0) {
        while (blockIdx.x > 0 && flag[blockIdx.x - 1] == 0) {}
        __threadfence();
        out[0] += a[blockIdx.x];
        __threadfence();
        flag[blockIdx.x] = 1;
    }
== flag_within_a_block
    volatile int* flag = out + 100;
    if (t < 32) {
        out[t] = a[t];
        __syncwarp();
        if (t == 0) {
            __threadfence();
            *flag = 1;
        }
    } else {
        if (t == 32) {
            while (*flag == 0) {}
            __threadfence();
        }
        __syncwarp();
        out[200 + t] = out[63 - t];
    }
== release_and_acquire grid=2
    if (blockIdx.x == 0 && t == 0) {
        out[0] = a[7];
        RELEASE(out + 100, 1);
    }
    if (blockIdx.x == 1 && t == 0) {
        int x;
        do ACQUIRE(x, out + 100);
        while (x == 0);
        out[1] = out[0];
    }
== compare_and_swap_after_a_plain_read grid=2
    int old = out[3], was;
    do {
        was = old;
        old = atomicCAS(out + 3, was, was + a[t]);
    } while (old != was);
== last_block_resets_the_counter grid=4
    if (t == 0 && atomicAdd(out + 100, 1) == 3) out[100] = 0;
== last_block_resets_the_counter_behind_fences grid=4
    if (t == 0) {
        out[blockIdx.x] = 1;
        __threadfence();
        if (atomicAdd(out + 100, 1) == 3) out[100] = out[2];
    }
== lock grid=3
    if (t == 0) {
        while (atomicCAS(out + 100, 0, 1) != 0) {}
        __threadfence();
        out[0] += a[blockIdx.x];
        __threadfence();
        atomicExch(out + 100, 0);
    }
== grid_barrier grid=3
    out[blockIdx.x * 64 + t] = a[t];
    __syncthreads();
    if (t == 0) {
        __threadfence();
        atomicAdd(out + 1000, 1);
        while (*(volatile int*)(out + 1000) < 3) {}
        __threadfence();
    }
    __syncthreads();
    out[2000 + blockIdx.x * 64 + t] = out[(blockIdx.x * 64 + t + 64) % 192];
== two_grid_barriers grid=3
    for (int p = 1; p < 3; ++p) {
        out[blockIdx.x * 64 + t] = a[t] + p;
        __syncthreads();
        if (t == 0) {
            __threadfence();
            atomicAdd(out + 1000, 1);
            while (atomicAdd(out + 1000, 0) < 6 * p - 3) {}
        }
        __syncthreads();
        int x = out[(blockIdx.x * 64 + t + 64) % 192];
        __syncthreads();
        if (t == 0) {
            __threadfence();
            atomicAdd(out + 1000, 1);
            while (atomicAdd(out + 1000, 0) < 6 * p) {}
        }
        __syncthreads();
        out[2000 + blockIdx.x * 64 + t] = x;
    }
== producer_and_consumer_of_global_memory
    if (t < 32) {
        out[t] = a[t];
        BAR_ARRIVE(1, 64);
    } else {
        BAR_SYNC(1, 64);
        out[t] = out[63 - t];
    }
== producer_of_global_memory_ends
    if (t < 32) {
        out[t] = a[t];
        BAR_ARRIVE(1, 64);
        asm volatile("exit;");
    }
    BAR_SYNC(1, 64);
    out[t] = out[63 - t];
== mbarrier_orders_global_memory
    __shared__ unsigned long long b;
    if (t == 0) MB_INIT(&b, 64);
    __syncthreads();
    out[t] = a[t];
    MB_ARRIVE(&b);
    MB_WAIT(&b, 0);
    out[100 + t] = out[63 - t];
"""

CASES = cases(FAULTS, "race", global_races=True)
RIGHT = cases(SOUND, global_races=True)
