"""Right kernels that look like faulty ones."""

from __future__ import annotations

from faults.cases import cases

WARPS = r"""
== reduction_with_warp_barriers threads=32
    __shared__ int s[32];
    s[t] = a[t];
    __syncwarp();
    for (int d = 16; d > 0; d >>= 1) {
        int x = t < d ? s[t + d] : 0;
        __syncwarp();
        if (t < d) s[t] += x;
        __syncwarp();
    }
    out[t] = s[0];
== reduction_whose_last_steps_are_in_one_warp threads=128
    __shared__ int s[128];
    s[t] = a[t];
    __syncthreads();
    if (t < 64) s[t] += s[t + 64];
    __syncthreads();
    if (t < 32) {
        s[t] += s[t + 32];
        __syncwarp();
        for (int d = 16; d > 0; d >>= 1) {
            if (t < d) s[t] += s[t + d];
            __syncwarp();
        }
    }
    if (t == 0) out[0] = s[0];
== warps_have_tiles_of_their_own threads=128
    __shared__ int s[4][32];
    int w = t / 32, lane = t & 31;
    for (int p = 0; p < 3; ++p) {
        s[w][lane] = a[p * 128 + t];
        __syncwarp();
        out[p * 128 + t] = s[w][31 - lane];
        __syncwarp();
    }
== halves_with_masks_of_their_own threads=32
    __shared__ int s[32];
    unsigned mask = t < 16 ? 0xffffu : 0xffff0000u;
    s[t] = a[t];
    __syncwarp(mask);
    out[t] = s[t ^ 15];
== halves_in_two_branches threads=32
    __shared__ int s[32];
    if (t < 16) {
        s[t] = a[t];
        __syncwarp(0xffffu);
        out[t] = s[15 - t];
    } else {
        s[t] = a[t] * 2;
        __syncwarp(0xffff0000u);
        out[t] = s[47 - t];
    }
== one_lane_s_mask threads=32
    __shared__ int s[32];
    s[t] = a[t];
    __syncwarp(1u << t);
    out[t] = s[t];
== halves_then_the_whole threads=32
    __shared__ int s[32];
    s[t] = a[t];
    __syncwarp(t < 16 ? 0xffffu : 0xffff0000u);
    int x = s[t ^ 1];
    __syncwarp();
    s[t ^ 16] = x;
    __syncwarp();
    out[t] = s[t];
== through_a_third_lane threads=32
    __shared__ int s[32];
    if (t == 0) s[0] = a[0];
    if (t < 2) __syncwarp(0x3u);
    if (t == 1 || t == 2) __syncwarp(0x6u);
    if (t == 2) out[0] = s[0];
== active_lanes_shuffle threads=32
    int x = a[t];
    if (a[t] % 3 == 0) {
        unsigned mask = __activemask();
        x = __shfl_sync(mask, x, __ffs(mask) - 1);
    }
    out[t] = x;
== ballot_then_shuffle threads=32
    int x = a[t];
    unsigned mask = __ballot_sync(ALL, x < 20);
    if (x < 20) x = __shfl_xor_sync(mask, x, 1);
    out[t] = x;
== shuffle_up_at_the_edge threads=32
    int x = a[t];
    if (t < 16) {
        int y = __shfl_up_sync(0xffffu, x, 1);
        if (t > 0) x += y;
    }
    out[t] = x;
== leaving_before_a_ballot threads=64
    if (t >= 40) return;
    unsigned mask = __ballot_sync(t < 32 ? ALL : 0xffu, a[t] > 3);
    out[t] = mask;
== leader_of_each_warp
    __shared__ int s[2];
    if ((t & 31) == 0) s[t / 32] = a[t];
    __syncwarp();
    out[t] = s[t / 32];
"""

FLAGS = r"""
== volatile_flag_with_fences
    __shared__ volatile int flag;
    __shared__ int s[32];
    if (t == 0) flag = 0;
    __syncthreads();
    if (t < 32) {
        s[t] = a[t];
        __syncwarp();
        if (t == 0) {
            __threadfence_block();
            flag = 1;
        }
    } else {
        if (t == 32)
            while (flag == 0) {}
        __threadfence_block();
        __syncwarp();
        out[t] = s[63 - t];
    }
== volatile_flags_both_ways
    __shared__ volatile int full, empty;
    __shared__ int x;
    if (t == 0) full = empty = 0;
    __syncthreads();
#pragma unroll 1
    for (int p = 1; p < 4; ++p) {
        if (t == 0) {
            while (empty != p - 1) {}
            __threadfence_block();
            x = a[p];
            __threadfence_block();
            full = p;
        }
        if (t == 32) {
            while (full != p) {}
            __threadfence_block();
            out[p] = x;
            __threadfence_block();
            empty = p;
        }
    }
== lock_in_shared_memory
    __shared__ int lock, sum;
    if (t == 0) lock = sum = 0;
    __syncthreads();
    if ((t & 31) == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) {}
        __threadfence_block();
        sum += a[t];
        __threadfence_block();
        atomicExch(&lock, 0);
    }
    __syncthreads();
    out[t] = sum;
== counter_that_is_waited_for threads=96
    __shared__ int count, s[96];
    if (t == 0) count = 0;
    __syncthreads();
    s[t] = a[t];
    __threadfence_block();
    __syncwarp();
    if ((t & 31) == 0) {
        atomicAdd(&count, 1);
        while (*(volatile int*)&count != 3) {}
    }
    __syncwarp();
    out[t] = s[95 - t];
"""

BLOCKS = r"""
== own_place
    __shared__ int s[64];
    s[t] = a[t];
    s[t] = s[t] * 3;
    out[t] = s[t];
== two_loops_over_own_places
    __shared__ int s[256];
    for (int i = t; i < 256; i += 64) s[i] = a[i];
    for (int i = t; i < 256; i += 64) out[i] = s[i] + 1;
== bytes_of_one_word
    __shared__ char s[64];
    s[t] = (char)a[t];
    out[t] = s[t];
== double_buffer
    __shared__ int s[2][64];
    int sum = 0;
    s[0][t] = a[t];
    __syncthreads();
    for (int p = 0; p < 5; ++p) {
        s[(p + 1) & 1][t] = a[(p + 1) * 64 + t];
        sum += s[p & 1][63 - t];
        __syncthreads();
    }
    out[t] = sum;
== triple_buffer_with_one_barrier
    __shared__ int s[3][64];
    int sum = 0;
#pragma unroll 1
    for (int p = 0; p < 6; ++p) {
        s[p % 3][t] = a[p * 64 + t];
        __syncthreads();
        sum += s[p % 3][63 - t];
    }
    out[t] = sum;
== one_block_at_a_time_leaves grid=3
    if (blockIdx.x == 1) return;
    __shared__ int s[64];
    s[t] = a[t];
    __syncthreads();
    out[blockIdx.x * 64 + t] = s[63 - t];
== blocks_part_at_a_barrier grid=4
    __shared__ int s[64];
    s[t] = a[t];
    if (blockIdx.x & 1) {
        __syncthreads();
        out[blockIdx.x * 64 + t] = s[63 - t];
    } else {
        __syncthreads();
        out[blockIdx.x * 64 + t] = s[t ^ 1];
    }
== leaving_before_a_barrier
    __shared__ int s[64];
    if (t >= 50) return;
    s[t] = a[t];
    __syncthreads();
    out[t] = s[49 - t];
== leaving_a_loop_of_barriers
    __shared__ int s[64];
    s[t] = a[t];
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        if (t >= 64 >> p) return;
        __syncthreads();
        if (t < 32 >> p) s[t] += s[t + (32 >> p)];
    }
== every_second_phase_has_a_barrier
    __shared__ int s[64];
    s[t] = a[t];
#pragma unroll 1
    for (int p = 0; p < 6; ++p) {
        if (p & 1) __syncthreads();
        out[p * 64 + t] = p < 1 ? s[t] : s[63 - t];
    }
== same_flag_by_one_instruction
    __shared__ int flag;
    if (t == 0) flag = 0;
    __syncthreads();
#pragma unroll 1
    for (int i = t; i < 300; i += 64)
        if (a[i] % 7 == t % 5) flag = 1;
    __syncthreads();
    out[t] = flag;
== same_flag_by_two_instructions
    __shared__ volatile int flag;
    if (t == 0) flag = 0;
    __syncthreads();
    if (a[t] == 3) flag = 1;
    if (a[t] > 60) flag = 1;
    __syncthreads();
    out[t] = flag;
== atomics_only
    __shared__ int bins[8];
    if (t < 8) bins[t] = 0;
    __syncthreads();
    for (int i = t; i < 300; i += 64) atomicAdd(&bins[a[i] & 7], 1);
    __syncthreads();
    if (t < 8) out[t] = bins[t];
== ticket_in_shared_memory
    __shared__ int next, s[64];
    if (t == 0) next = 0;
    __syncthreads();
    int mine = atomicAdd(&next, 1);
    s[mine] = a[t];
    __syncthreads();
    out[t] = s[t];
== union_of_two_types
    __shared__ double wide[64];
    wide[t] = a[t];
    __syncthreads();
    float x = (float)wide[63 - t];
    __syncthreads();
    ((float*)wide)[t] = x;
    __syncthreads();
    out[t] = (int)((float*)wide)[63 - t];
== transpose_in_place_by_registers threads=256
    __shared__ int s[16][16];
    s[t / 16][t % 16] = a[t];
    __syncthreads();
    int x = s[t % 16][t / 16];
    __syncthreads();
    s[t / 16][t % 16] = x;
    out[t] = s[t / 16][t % 16];
"""

NAMED = r"""
== halves_with_barriers_of_their_own threads=128
    __shared__ int s[128];
    s[t] = a[t];
    BAR_SYNC(1 + t / 64, 64);
    out[t] = s[t ^ 63];
== producer_and_consumer
    __shared__ int s[32];
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        if (t < 32) {
            BAR_SYNC(1, 64);
            s[t] = a[p * 32 + t];
            BAR_ARRIVE(2, 64);
        } else {
            BAR_ARRIVE(1, 64);
            BAR_SYNC(2, 64);
            out[p * 32 + t - 32] = s[63 - t];
        }
    }
== producer_two_buffers_ahead
    __shared__ int s[2][32];
#pragma unroll 1
    for (int p = 0; p < 6; ++p) {
        if (t < 32) {
            if (p >= 2) BAR_SYNC(3 + (p & 1), 64);
            s[p & 1][t] = a[p * 32 + t];
            BAR_ARRIVE(1 + (p & 1), 64);
        } else {
            BAR_SYNC(1 + (p & 1), 64);
            out[p * 32 + t - 32] = s[p & 1][63 - t];
            if (p < 4) BAR_ARRIVE(3 + (p & 1), 64);
        }
    }
== relay_of_three_warps threads=96
    __shared__ int s[32];
    int lane = t & 31, w = t / 32;
    if (w == 0) {
        s[lane] = a[lane];
        BAR_ARRIVE(1, 64);
    } else if (w == 1) {
        BAR_SYNC(1, 64);
        s[lane] += 1;
        BAR_ARRIVE(2, 64);
    } else {
        BAR_SYNC(2, 64);
        out[lane] = s[31 - lane];
    }
== whole_block_by_a_named_barrier
    __shared__ int s[64];
    s[t] = a[t];
    BAR_SYNC(5, 64);
    out[t] = s[63 - t];
== arrived_before_a_whole_barrier
    __shared__ int s[64];
    s[t] = a[t];
    if (t < 32) BAR_ARRIVE(1, 64);
    __syncthreads();
    out[t] = s[63 - t];
    if (t >= 32) BAR_SYNC(1, 64);
== part_of_the_block_works_on threads=96
    __shared__ int s[64];
    if (t < 64) {
        for (int p = 0; p < 3; ++p) {
            s[t] = a[p * 64 + t];
            BAR_SYNC(1, 64);
            out[p * 64 + t] = s[63 - t];
            BAR_SYNC(1, 64);
        }
    } else {
        out[1000 + t] = a[t];
    }
    __syncthreads();
    out[2000 + t] = s[t & 63];
"""

CASES = [*cases(WARPS), *cases(FLAGS), *cases(BLOCKS), *cases(NAMED)]
