"""Races beside barriers of a part of a block or of a warp, and beside flags and locks."""

from __future__ import annotations

from faults.cases import cases

PARTS = r"""
== named_barrier_of_a_half_for_all
    __shared__ int s[64];
    s[t] = a[t];
    if (t < 32) BAR_SYNC(1, 32);
    out[t] = s[t ^ 1];  // fault
== named_barrier_of_a_half_before_write
    __shared__ int s[64];
    s[t] = a[t];
    __syncthreads();
    int x = s[t ^ 1];
    if (t < 32) BAR_SYNC(1, 32);
    s[t] = x;  // fault
    __syncthreads();
    out[t] = s[t];
== named_barrier_of_one_half_read_by_the_other
    __shared__ int s[64];
    if (t < 32) {
        s[t] = a[t];
        BAR_SYNC(1, 32);
        out[t] = s[t ^ 1];
    } else {
        out[t] = s[t - 32];  // fault
    }
== named_barriers_of_different_numbers
    __shared__ int s[64];
    s[t] = a[t];
    BAR_SYNC(1 + t / 32, 32);
    out[t] = s[63 - t];  // fault
== named_barriers_of_pairs_of_warps threads=128
    __shared__ int s[128];
    s[t] = a[t];
    BAR_SYNC(1 + t / 64, 64);
    out[t] = s[(t + 64) & 127];  // fault
== named_barrier_of_three_warps threads=128
    __shared__ int s[128];
    s[t] = a[t];
    if (t < 96) BAR_SYNC(1, 96);
    out[t] = s[127 - t];  // fault
== arriving_is_not_waiting
    __shared__ int s[64];
    s[t] = a[t];
    if (t < 32) BAR_ARRIVE(1, 64);
    else BAR_SYNC(1, 64);
    out[t] = s[63 - t];  // fault
== write_after_arriving
    __shared__ int s[64];
    if (t < 32) {
        s[t] = a[t];
        BAR_ARRIVE(1, 64);
        s[t] = a[t] + 1;
    } else {
        BAR_SYNC(1, 64);
        out[t] = s[63 - t];  // fault
    }
== everybody_arrives_and_nobody_waits
    __shared__ int s[64];
    s[t] = a[t];
    BAR_ARRIVE(1, 64);
    if (t < 32) {
        BAR_SYNC(1, 32);
        out[t] = s[63 - t];  // fault
    }
== producer_arrives_early
    __shared__ int s[32];
    if (t < 32) {
        BAR_ARRIVE(1, 64);
        s[t] = a[t];
    } else {
        BAR_SYNC(1, 64);
        out[t] = s[63 - t];  // fault
    }
== consumer_gives_no_room
    __shared__ int s[32];
#pragma unroll 1
    for (int p = 0; p < 3; ++p) {
        if (t < 32) {
            s[t] = a[p * 32 + t];  // fault
            BAR_ARRIVE(1, 64);
        } else {
            BAR_SYNC(1, 64);
            out[t] = s[63 - t];
        }
    }
== consumer_gives_room_early
    __shared__ int s[32];
#pragma unroll 1
    for (int p = 0; p < 3; ++p) {
        if (t < 32) {
            if (p > 0) BAR_SYNC(2, 64);
            s[t] = a[p * 32 + t];  // fault
            BAR_ARRIVE(1, 64);
        } else {
            BAR_SYNC(1, 64);
            BAR_ARRIVE(2, 64);
            out[t] = s[63 - t];
        }
    }
== consumer_waits_at_the_wrong_number
    __shared__ int s[32];
    if (t < 32) {
        s[t] = a[t];
        BAR_ARRIVE(1, 64);
        BAR_ARRIVE(2, 64);
        s[t] = a[t] + 1;
        BAR_ARRIVE(3, 64);
    } else {
        BAR_SYNC(2, 64);
        out[t] = s[63 - t];  // fault
    }
== double_buffer_with_one_pair_of_barriers
    __shared__ int s[2][32];
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        if (t < 32) {
            s[p & 1][t] = a[p * 32 + t];  // fault
            BAR_ARRIVE(1 + (p & 1), 64);
        } else {
            BAR_SYNC(1 + (p & 1), 64);
            out[t] = s[p & 1][63 - t];
        }
    }
== warp_barrier_for_a_block @d=32,48
    __shared__ int s[64];
    s[t] = a[t];
    __syncwarp();
    out[t] = s[t ^ @d];  // fault
== warp_barriers_twice_for_a_block
    __shared__ int s[64];
    s[t] = a[t];
    __syncwarp();
    int x = s[t ^ 1];
    __syncwarp();
    s[t ^ 32] = x;  // fault
    __syncthreads();
    out[t] = s[t];
== warp_barriers_of_halves @d=16,31 threads=32
    __shared__ int s[32];
    s[t] = a[t];
    __syncwarp(t < 16 ? 0xffffu : 0xffff0000u);
    out[t] = s[t ^ @d];  // fault
== warp_barrier_of_one_half_only threads=32
    __shared__ int s[32];
    s[t] = a[t];
    if (t < 16) __syncwarp(0xffffu);
    out[t] = s[t ^ 16];  // fault
== warp_barrier_of_one_half_before_write threads=32
    __shared__ int s[32];
    s[t] = a[t];
    __syncwarp();
    int x = s[t ^ 16];
    if (t < 16) __syncwarp(0xffffu);
    s[t] = x;  // fault
    __syncwarp();
    out[t] = s[t];
== warp_barriers_of_quarters threads=32
    __shared__ int s[32];
    s[t] = a[t];
    __syncwarp(0xffu << (t & 24));
    out[t] = s[t ^ 8];  // fault
== warp_barriers_of_odd_and_even threads=32
    __shared__ int s[32];
    s[t] = a[t];
    __syncwarp(t & 1 ? 0xaaaaaaaau : 0x55555555u);
    out[t] = s[t ^ 1];  // fault
== two_warp_barriers_of_a_half_against_none threads=32
    __shared__ int s[32];
    s[t] = a[t];
    if (t < 16) {
        __syncwarp(0xffffu);
        __syncwarp(0xffffu);
        out[t] = s[t + 16];  // fault
    }
== without_warp_barrier threads=32
    __shared__ volatile int s[32];
    s[t] = a[t];
    out[t] = s[31 - t];  // fault
== shuffle_in_place_of_a_warp_barrier threads=32
    __shared__ int s[32];
    s[t] = a[t];
    int x = __shfl_xor_sync(ALL, t, 1);
    out[t] = s[x];  // fault
== vote_in_place_of_a_warp_barrier threads=32
    __shared__ int s[32];
    s[t] = a[t];
    if (__any_sync(ALL, t == 3)) out[t] = s[31 - t];  // fault
== fence_in_place_of_a_barrier
    __shared__ int s[64];
    s[t] = a[t];
    __threadfence_block();
    out[t] = s[63 - t];  // fault
== warp_transpose_without_second_barrier threads=32
    __shared__ int s[32];
#pragma unroll 1
    for (int p = 0; p < 2; ++p) {
        s[t] = a[p * 32 + t];  // fault
        __syncwarp();
        out[p * 32 + t] = s[31 - t];
    }
== warp_scan_in_place threads=32
    __shared__ int s[32];
    s[t] = a[t];
    __syncwarp();
#pragma unroll 1
    for (int d = 1; d < 32; d <<= 1) {
        int x = t >= d ? s[t - d] : 0;
        s[t] += x;  // fault
        __syncwarp();
    }
    out[t] = s[t];
== warp_reduction_without_barriers threads=32
    __shared__ volatile int s[64];
    s[t] = a[t];
    s[t + 32] = 0;
    __syncwarp();
    s[t] += s[t + 8];  // fault
    __syncwarp();
    out[t] = s[0];
== leader_writes_after_its_warp
    __shared__ int s[64];
    s[t] = a[t];
    __syncwarp();
    if ((t & 31) == 0) s[t] = s[t + 31] + 1;
    out[t] = s[t & 32];  // fault
== counted_barrier_of_a_part_of_the_block threads=96
    __shared__ int s[96];
    s[t] = a[t];
    if (t < 64) BAR_SYNC(1, 64);
    if (t >= 32) out[t] = s[t - 32];  // fault
"""

FLAGS = r"""
== volatile_flag_without_fence
    __shared__ volatile int flag;
    __shared__ int x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) {
        x = a[5];
        flag = 1;
    }
    if (t == 32) {
        while (flag == 0) {}
        out[0] = x;  // fault
        __threadfence_block();
    }
== volatile_flag_before_its_value
    __shared__ volatile int flag;
    __shared__ int x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) {
        __threadfence_block();
        flag = 1;
        x = a[5];
    }
    if (t == 32) {
        while (flag == 0) {}
        out[0] = x;  // fault
    }
== flag_for_a_leader_only
    __shared__ volatile int flag;
    __shared__ int s[32];
    if (t == 0) flag = 0;
    __syncthreads();
    if (t < 32) {
        s[t] = a[t];
        __threadfence_block();
        if (t == 0) flag = 1;
    } else {
        while (flag == 0) {}
        out[t] = s[63 - t];  // fault
    }
== volatile_values_beside_a_fence threads=32
    __shared__ volatile int s[32];
    s[t] = a[t];
    __threadfence_block();
    out[t] = s[31 - t];  // fault
== lock_given_back_early
    __shared__ int lock, sum;
    if (t == 0) lock = sum = 0;
    __syncthreads();
    if ((t & 31) == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) {}
        __threadfence_block();
        int x = sum;  // fault
        atomicExch(&lock, 0);
        sum = x + a[t];
    }
"""

CASES = [*cases(PARTS, "race"), *cases(FLAGS, "race")]
