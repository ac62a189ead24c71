"""Races in shared memory of kernels that lack a barrier of the block."""

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

CASES = cases(BLOCKS, "race")
