"""Races in shared memory."""

from __future__ import annotations

from faults.cases import cases

BLOCKS = r"""
== read_after_write @d=1,32,63
    __shared__ int s[64];
    s[t] = a[t];
    out[t] = s[t ^ @d];  // fault
== read_after_write_in_another_order
    __shared__ int s[64];
    s[63 - t] = a[t];
    out[t] = s[t];  // fault
== write_after_read @d=1,33
    __shared__ int s[64];
    s[t] = a[t];
    __syncthreads();
    int x = s[(t + @d) & 63];
    s[t] = x;  // fault
    __syncthreads();
    out[t] = s[t];
== write_after_write
    __shared__ int s[64];
    s[t] = a[t];
    s[63 - t] = a[t] + 100;  // fault
    __syncthreads();
    out[t] = s[t];
== write_after_write_of_halves
    __shared__ int s[32];
    if (t < 32) s[t] = a[t];
    if (t >= 32) s[t - 32] = a[t];  // fault
    __syncthreads();
    out[t] = s[t & 31];
== one_instruction_with_different_values
    __shared__ int s;
    s = t;  // fault
    __syncthreads();
    out[t] = s;
== one_instruction_twice_with_different_values
    __shared__ int s;
#pragma unroll 1
    for (int i = 0; i < 2; ++i)
        if ((t & 1) == i) s = i;  // fault
    __syncthreads();
    out[t] = s;
== barrier_in_the_wrong_place
    __shared__ int s[64];
    s[t] = a[t];
    int x = s[t ^ 1];  // fault
    __syncthreads();
    out[t] = x;
== barrier_after_the_loop_only
    __shared__ int s[64];
    int sum = 0;
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        s[t] = a[p * 64 + t];
        sum += s[63 - t];  // fault
    }
    __syncthreads();
    out[t] = sum;
== phase_without_second_barrier
    __shared__ int s[64];
    int sum = 0;
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        s[t] = a[p * 64 + t];  // fault
        __syncthreads();
        sum += s[63 - t];
    }
    out[t] = sum;
== phase_without_first_barrier
    __shared__ int s[64];
    int sum = 0;
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        s[t] = a[p * 64 + t];
        sum += s[63 - t];  // fault
        __syncthreads();
    }
    out[t] = sum;
== double_buffer_with_one_buffer
    __shared__ int s[2][64];
    int sum = 0;
    s[0][t] = a[t];
    __syncthreads();
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        s[0][t] = a[(p + 1) * 64 + t];
        sum += s[0][63 - t];  // fault
        __syncthreads();
    }
    out[t] = sum + s[0][t];
== double_buffer_off_by_one
    __shared__ int s[2][64];
    int sum = 0;
    s[0][t] = s[1][t] = a[t];
    __syncthreads();
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        s[(p + 1) & 1][t] = a[(p + 1) * 64 + t];
        sum += s[(p + 1) & 1][63 - t];  // fault
        __syncthreads();
    }
    out[t] = sum;
== triple_buffer_with_two
    __shared__ int s[2][64];
    int sum = 0;
    s[0][t] = a[t];
    s[1][t] = a[64 + t];
    __syncthreads();
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        s[(p + 2) % 2][t] = a[(p + 2) * 64 + t];
        sum += s[p % 2][63 - t];  // fault
        __syncthreads();
    }
    out[t] = sum;
== stencil_without_barrier
    __shared__ int s[66];
    s[t + 1] = a[t];
    if (t == 0) s[0] = s[65] = 0;
    out[t] = s[t] + s[t + 2];  // fault
== stencil_in_place
    __shared__ int s[66];
    s[t + 1] = a[t];
    if (t == 0) s[0] = s[65] = 0;
    __syncthreads();
    int x = s[t] + s[t + 2];
    s[t + 1] = x;  // fault
    __syncthreads();
    out[t] = s[t + 1];
== halo_after_the_barrier
    __shared__ int s[66];
    s[t + 1] = a[t];
    __syncthreads();
    if (t == 1) s[0] = a[64];
    if (t == 63) s[65] = a[65];
    out[t] = s[t] + s[t + 2];  // fault
== reduction_without_barrier
    __shared__ int s[64];
    s[t] = a[t];
    __syncthreads();
#pragma unroll 1
    for (int d = 32; d > 0; d >>= 1)
        if (t < d) s[t] += s[t + d];  // fault
    if (t == 0) out[0] = s[0];
== reduction_with_its_last_steps_in_one_warp threads=128
    __shared__ volatile int s[128];
    s[t] = a[t];
    __syncthreads();
    if (t < 64) s[t] = s[t] + s[t + 64];
    __syncthreads();
    if (t < 32) {
        s[t] = s[t] + s[t + 32];
        s[t] = s[t] + s[t + 16];  // fault
    }
    if (t == 0) out[0] = s[0];
== reduction_whose_result_is_read_early
    __shared__ int s[64];
    s[t] = a[t];
#pragma unroll 1
    for (int d = 32; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) s[t] += s[t + d];
    }
    out[t] = s[0];  // fault
== reduction_that_adds_overlapping_halves
    __shared__ int s[64];
    s[t] = a[t];
    __syncthreads();
    if (t < 48) s[t] += s[t + 16];  // fault
    __syncthreads();
    out[t] = s[t];
== warp_sums_read_early
    __shared__ int s[2];
    int x = a[t];
    for (int d = 16; d > 0; d >>= 1) x += __shfl_down_sync(ALL, x, d);
    if ((t & 31) == 0) s[t / 32] = x;
    if (t == 0) out[0] = s[0] + s[1];  // fault
== scan_in_place
    __shared__ int s[64];
    s[t] = a[t];
    __syncthreads();
#pragma unroll 1
    for (int d = 1; d < 64; d <<= 1) {
        int x = t >= d ? s[t - d] : 0;
        s[t] += x;  // fault
        __syncthreads();
    }
    out[t] = s[t];
== scan_without_second_barrier
    __shared__ int s[64];
    s[t] = a[t];
#pragma unroll 1
    for (int d = 1; d < 64; d <<= 1) {
        __syncthreads();
        int x = t >= d ? s[t - d] : 0;
        s[t] += x;  // fault
    }
    out[t] = s[t];
== scan_of_warps_without_barrier
    __shared__ int sums[2];
    int x = a[t], lane = t & 31;
    for (int d = 1; d < 32; d <<= 1) {
        int y = __shfl_up_sync(ALL, x, d);
        if (lane >= d) x += y;
    }
    if (lane == 31) sums[t / 32] = x;
    if (t >= 32) x += sums[0];  // fault
    out[t] = x;
== histogram_without_atomics
    __shared__ int bins[8];
    if (t < 8) bins[t] = 0;
    __syncthreads();
    bins[(t * 5 + t / 8) & 7] += t;  // fault
    __syncthreads();
    if (t < 8) out[t] = bins[t];
== histogram_cleared_late
    __shared__ int bins[8];
    if (t < 8) bins[t] = 0;
    atomicAdd(&bins[a[t] & 7], 1);  // fault
    __syncthreads();
    if (t < 8) out[t] = bins[t];
== histogram_read_early
    __shared__ int bins[8];
    if (t < 8) bins[t] = 0;
    __syncthreads();
    atomicAdd(&bins[a[t] & 7], 1);
    if (t < 8) out[t] = bins[t];  // fault
== histogram_partly_without_atomics
    __shared__ int bins[8];
    if (t < 8) bins[t] = 0;
    __syncthreads();
    if (t < 32) atomicAdd(&bins[a[t] & 7], 1);
    if (t >= 56) bins[t & 7] += 1;  // fault
    __syncthreads();
    if (t < 8) out[t] = bins[t];
== transpose_without_barrier threads=256
    __shared__ int s[16][17];
    s[t / 16][t % 16] = a[t];
    out[t] = s[t % 16][t / 16];  // fault
== transpose_in_place threads=256
    __shared__ int s[16][16];
    s[t / 16][t % 16] = a[t];
    __syncthreads();
    int x = s[t % 16][t / 16];
    s[t / 16][t % 16] = x;  // fault
    __syncthreads();
    out[t] = s[t / 16][t % 16];
== transpose_of_two_tiles threads=256
    __shared__ int s[16][17];
#pragma unroll 1
    for (int p = 0; p < 2; ++p) {
        s[t / 16][t % 16] = a[p * 256 + t];  // fault
        __syncthreads();
        out[p * 256 + t] = s[t % 16][t / 16];
    }
== atomic_and_plain_read
    __shared__ int sum;
    if (t == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, a[t]);
    out[t] = sum;  // fault
== atomic_and_plain_write
    __shared__ int sum;
    if (t == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, a[t]);
    if (t == 5) sum = 7;  // fault
    __syncthreads();
    out[t] = sum;
== bytes_beside_words
    __shared__ int s[16];
    char* c = (char*)s;
    c[t] = (char)a[t];
    out[t] = s[t / 4];  // fault
== vectors_over_words
    __shared__ alignas(16) int s[256];
    s[t] = a[t]; s[t + 64] = a[t]; s[t + 128] = a[t]; s[t + 192] = a[t];
    int4 x = ((int4*)s)[t];  // fault
    out[t] = x.x + x.y + x.z + x.w;
== second_tile_over_the_first
    __shared__ int s[64];
    s[t] = a[t];
    __syncthreads();
    int x = s[63 - t];
    if (t < 32) s[t] = x;  // fault
    __syncthreads();
    out[t] = s[t & 31] + x;
== flag_read_while_it_is_set
    __shared__ int flag;
    if (t == 0) flag = 0;
    __syncthreads();
    if (a[t] == 40) flag = 1;
    out[t] = flag;  // fault
== next_flag_set_before_the_last_is_read
    __shared__ int flag;
    int count = 0;
#pragma unroll 1
    for (int p = 0; p < 3; ++p) {
        if (t == 0) flag = a[p];  // fault
        __syncthreads();
        count += flag;
    }
    out[t] = count;
== dynamic_shared_memory shared=512
    extern __shared__ int s[];
    s[t] = a[t];
    s[t + 64] = a[t];
    __syncthreads();
    s[t] = s[t + 64];
    out[t] = s[63 - t];  // fault
== generic_pointer
    __shared__ int s[64];
    int* p = a[0] == 0 ? s : out;
    p[t] = a[t];
    out[t] = p[63 - t];  // fault
== of_one_block_only grid=3
    __shared__ int s[64];
    s[t] = a[t];
    if (blockIdx.x != 1) __syncthreads();
    out[t] = s[63 - t];  // fault
== of_the_last_phase_only
    __shared__ int s[64];
    int sum = 0;
#pragma unroll 1
    for (int p = 0; p < 6; ++p) {
        s[t] = a[p * 64 + t];
        if (p != 5) __syncthreads();
        sum += s[63 - t];  // fault
        __syncthreads();
    }
    out[t] = sum;
"""

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

COPIES = r"""
== copy_without_barrier
    __shared__ int s[64];
    COPY(&s[t], a + t);
    WAIT_ALL();
    out[t] = s[63 - t];  // fault
== copy_without_wait
    __shared__ int s[64];
    COPY(&s[t], a + t);
    COMMIT();
    __syncthreads();
    out[t] = s[63 - t];  // fault
== copy_whose_own_thread_does_not_wait
    __shared__ int s[64];
    s[t] = 0;
    COPY(&s[t], a + t);
    out[t] = s[t];  // fault
== copy_waited_for_after_the_barrier
    __shared__ int s[64];
    COPY(&s[t], a + t);
    COMMIT();
    __syncthreads();
    WAIT(0);
    out[t] = s[63 - t];  // fault
== copy_without_commit
    __shared__ int s[64];
    COPY(&s[t], a + t);
    WAIT(0);
    COPY(&s[t], a + t);  // fault
    COMMIT();
    WAIT(0);
    __syncthreads();
    out[t] = s[63 - t];
== copy_waits_for_too_few_groups
    __shared__ int s[2][64];
    COPY(&s[0][t], a + t);
    COMMIT();
    COPY(&s[1][t], a + 64 + t);
    COMMIT();
    WAIT(1);
    __syncthreads();
    out[t] = s[0][63 - t];
    out[t + 64] = s[1][63 - t];  // fault
== copies_double_buffered_off_by_one
    __shared__ int s[2][64];
    s[0][t] = s[1][t] = 0;
    __syncthreads();
    COPY(&s[0][t], a + t);
    COMMIT();
    int sum = 0;
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        COPY(&s[(p + 1) & 1][t], a + (p + 1) * 64 + t);
        COMMIT();
        WAIT(1);
        __syncthreads();
        sum += s[(p + 1) & 1][63 - t];  // fault
        __syncthreads();
    }
    out[t] = sum;
== copies_double_buffered_without_second_barrier
    __shared__ int s[2][64];
    COPY(&s[0][t], a + t);
    COMMIT();
    int sum = 0;
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        COPY(&s[(p + 1) & 1][t], a + (p + 1) * 64 + t);  // fault
        COMMIT();
        WAIT(1);
        __syncthreads();
        sum += s[p & 1][63 - t];
    }
    out[t] = sum;
== copy_over_what_is_read
    __shared__ int s[64];
    s[t] = a[t];
    __syncthreads();
    int x = s[63 - t];
    COPY(&s[t], a + 64 + t);  // fault
    WAIT_ALL();
    __syncthreads();
    out[t] = x + s[63 - t];
== copy_with_a_barrier_of_a_half
    __shared__ int s[64];
    COPY(&s[t], a + t);
    WAIT_ALL();
    if (t < 32) BAR_SYNC(1, 32);
    out[t] = s[t ^ 1];  // fault
== copy_with_a_warp_barrier
    __shared__ int s[64];
    COPY(&s[t], a + t);
    WAIT_ALL();
    __syncwarp();
    out[t] = s[t ^ 32];  // fault
== store_over_a_copy_on_its_way
    __shared__ int s[64];
    COPY(&s[t], a + t);
    COMMIT();
    s[t] = 0;  // fault
    WAIT(0);
    __syncthreads();
    out[t] = s[63 - t];
"""

CASES = [*cases(BLOCKS, "race"), *cases(PARTS, "race"), *cases(COPIES, "race")]
