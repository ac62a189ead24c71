"""Barriers and shuffles that a part of the block or of the warp misses, and wrong masks."""

from __future__ import annotations

from faults.cases import cases

BARRIERS = r"""
== barrier_of_odd_threads
    if (t & 1) __syncthreads();  // fault
    out[t] = a[t];
== barrier_of_the_first_threads @n=16,32,40
    __shared__ int s[64];
    s[t] = a[t];
    if (t < @n) __syncthreads();  // fault
    out[t] = s[t];
== barrier_of_who_has_work
    __shared__ int s[64];
    s[t] = 0;
    if (a[t] > 10) {
        s[t] = a[t];
        __syncthreads();  // fault
    }
    out[t] = s[t];
== barrier_in_a_loop_of_unequal_length
    __shared__ int s[64];
    s[t] = a[t];
#pragma unroll 1
    for (int i = 0; i < (t & 3); ++i) {
        s[t] += i;
        __syncthreads();  // fault
    }
    out[t] = s[t];
== barrier_in_a_reduction_s_branch
    __shared__ int s[64];
    s[t] = a[t];
    __syncthreads();
#pragma unroll 1
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) {
            s[t] += s[t + d];
            __syncthreads();  // fault
        }
    }
    if (t == 0) out[0] = s[0];
== barrier_behind_a_break
    __shared__ int s[64];
    s[t] = 0;
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        if (a[t] < 16 * p) break;
        s[t] += a[p * 64 + t];
        __syncthreads();  // fault
    }
    out[t] = s[t];
== barrier_behind_a_continue
    __shared__ int s[64];
    s[t] = 0;
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        if ((t + p) & 32) continue;
        s[t] += a[p * 64 + t];
        __syncthreads();  // fault
    }
    out[t] = s[t];
== two_barriers_for_two_halves
    __shared__ int s[64];
    s[t] = a[t];
    if (t < 32) {
        __syncthreads();  // fault
        out[t] = s[t + 32];
    } else {
        __syncthreads();
        out[t] = s[t - 32] + 1;
    }
== one_half_goes_to_the_next_barrier
    __shared__ int s[64];
    s[t] = a[t];
    if (t < 32) __syncthreads();  // fault
    s[t] += 1;
    __syncthreads();
    out[t] = s[63 - t];
== counting_barrier_of_a_part
    int n = 0;
    if (t < 48) n = __syncthreads_count(a[t] > 3);  // fault
    out[t] = n;
== barrier_of_a_part_in_one_block grid=3
    if (blockIdx.x != 1 || t < 9) __syncthreads();  // fault
    out[t + 64 * blockIdx.x] = a[t];
== named_barrier_that_never_fills
    BAR_SYNC(1, 96);  // fault
    out[t] = a[t];
== named_barrier_of_a_warp_too_few threads=96
    if (t < 64) BAR_SYNC(2, 96);  // fault
    out[t] = a[t];
== consumer_of_a_missing_producer
    if (t >= 32) BAR_SYNC(1, 64);  // fault
    out[t] = a[t];
== producer_arrives_at_another_number
    if (t < 32) BAR_ARRIVE(1, 64);
    else BAR_SYNC(2, 64);  // fault
    out[t] = a[t];
== counting_barrier_with_a_plain_one
    int n = 0;
    if (t < 32) n = __syncthreads_count(a[t] > 3);  // fault
    else __syncthreads();
    out[t] = n;
== full_shuffle_of_a_half threads=32
    int x = a[t];
    if (t < 16) x = __shfl_xor_sync(ALL, x, 1);  // fault
    out[t] = x;
== full_shuffle_of_odd_lanes threads=32
    int x = a[t];
    if (t & 1) x += __shfl_down_sync(ALL, x, 2);  // fault
    out[t] = x;
== full_vote_of_a_half threads=32
    int x = a[t];
    if (t < 16) x = __ballot_sync(ALL, x > 3);  // fault
    out[t] = x;
== full_warp_barrier_of_a_half threads=32
    __shared__ int s[32];
    s[t] = a[t];
    if (t < 16) __syncwarp();  // fault
    out[t] = s[t];
== full_warp_barrier_of_who_has_work
    __shared__ int s[64];
    s[t] = a[t];
    if (a[t] % 3 == 0) {
        __syncwarp();  // fault
        s[t] += 1;
    }
    out[t] = s[t];
== reduction_in_a_branch
    int x = a[t];
    if (t < 40)
#pragma unroll 1
        for (int d = 16; d > 0; d >>= 1) x += __shfl_down_sync(ALL, x, d);  // fault
    out[t] = x;
== shuffle_from_outside_the_mask threads=32
    int x = a[t];
    if (t < 16) x = __shfl_xor_sync(0xffffu, x, 16);  // fault
    out[t] = x;
== shuffle_down_past_the_mask threads=32
    int x = a[t];
    if (t < 8) x += __shfl_down_sync(0xffu, x, 4);  // fault
    out[t] = x;
== broadcast_from_outside_the_mask threads=32
    int x = a[t];
    if (t >= 4) x = __shfl_sync(0xfffffff0u, x, 0);  // fault
    out[t] = x;
== shuffle_up_from_a_masked_lane threads=32
    int x = a[t];
    if (t & 1) x = __shfl_up_sync(0xaaaaaaaau, x, 1);  // fault
    out[t] = x;
== shuffle_from_a_lane_that_ended threads=32
    if (t >= 20) return;
    int x = a[t];
    x += __shfl_down_sync(ALL, x, 16);  // fault
    out[t] = x;
== shuffle_from_a_lane_that_is_not_there threads=48
    int x = a[t];
    x = __shfl_xor_sync(ALL, x, 16);  // fault
    out[t] = x;
== shuffle_whose_mask_lacks_its_lane threads=32
    int x = __shfl_sync(0x0000ffffu, a[t], 3);  // fault
    out[t] = x;
== warp_barrier_whose_mask_lacks_its_lane threads=32
    __shared__ int s[32];
    s[t] = a[t];
    __syncwarp(0x7fffffffu);  // fault
    out[t] = s[t];
== shuffles_with_two_masks threads=32
    int x = __shfl_sync(t < 16 ? ALL : 0xffff0000u, a[t], 20);  // fault
    out[t] = x;
== vote_with_two_masks threads=32
    out[t] = __ballot_sync(t < 8 ? 0xffffu : ALL, a[t] > 3);  // fault
"""

CASES = cases(BARRIERS, "barrier")
