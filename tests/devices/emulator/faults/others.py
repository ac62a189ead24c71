"""Barriers, shuffles, memory, mbarriers and bulk copies that are used wrongly."""

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

MEMORY = r"""
== read_past kind=out_of_bounds @n=4033,4096
    out[t] = a[t + @n];  // fault
== write_past kind=out_of_bounds
    out[t * 66] = a[t];  // fault
== read_before kind=out_of_bounds
    out[t] = a[t - 1];  // fault
== off_by_one_block kind=out_of_bounds grid=65
    int i = blockIdx.x * 64 + t;
    if (i <= 4096) out[i] = a[i & 4095];  // fault
== stencil_at_the_edge kind=out_of_bounds grid=64
    int i = blockIdx.x * 64 + t;
    out[i] = a[i] + a[i + 1];  // fault
== negative_index kind=out_of_bounds
    int i = a[t] - 3;
    out[t] = a[i];  // fault
== vector_past_the_end kind=out_of_bounds
    int4 x = ((const int4*)a)[t * 17];  // fault
    out[t] = x.x;
== atomic_past_the_end kind=out_of_bounds
    atomicAdd(out + 4090 + a[t], 1);  // fault
== null_pointer kind=out_of_bounds
    int* p = (int*)(long long)a[0];
    p[t] = 1;  // fault
== shared_past_the_end kind=out_of_bounds
    __shared__ int s[32];
    s[t] = a[t];  // fault
    __syncthreads();
    out[t] = s[t & 31];
== shared_read_past kind=out_of_bounds
    __shared__ int s[64];
    s[t] = a[t];
    __syncthreads();
    out[t] = s[t + 1];  // fault
== dynamic_shared_past kind=out_of_bounds shared=128
    extern __shared__ int s[];
    s[t] = a[t];  // fault
    out[t] = s[t];
== copy_past_the_end kind=out_of_bounds
    __shared__ int s[64];
    COPY(&s[t], a + 4070 + t);  // fault
    WAIT_ALL();
    out[t] = s[t];
== shared_never_written kind=uninitialised
    __shared__ int s[64];
    if (t < 60) s[t] = a[t];
    __syncthreads();
    out[t] = s[t];  // fault
== halo_never_written kind=uninitialised
    __shared__ int s[66];
    s[t + 1] = a[t];
    __syncthreads();
    out[t] = s[t] + s[t + 2];  // fault
== transposed_tile_partly_written kind=uninitialised threads=256
    __shared__ int s[16][17];
    if (t < 250) s[t / 16][t % 16] = a[t];
    __syncthreads();
    out[t] = s[t % 16][t / 16];  // fault
== bins_never_cleared kind=uninitialised
    __shared__ int bins[8];
    atomicAdd(&bins[a[t] & 7], 1);  // fault
    __syncthreads();
    if (t < 8) out[t] = bins[t];
== output_read_before_it_is_written kind=uninitialised empty=1
    out[t] += a[t];  // fault
== array_partly_written kind=uninitialised empty=1
    if (t < 50) out[t] = a[t];
    __syncthreads();
    out[t + 64] = out[t] + 1;  // fault
== local_never_written kind=uninitialised
    int mine[8];
    for (int i = 0; i < (a[t] & 7); ++i) mine[i] = i;
    out[t] = mine[a[t] & 7];  // fault
== next_buffer_never_filled kind=uninitialised
    __shared__ int s[2][64];
    s[0][t] = a[t];
    __syncthreads();
    int sum = 0;
#pragma unroll 1
    for (int p = 0; p < 2; ++p) sum += s[p][63 - t];  // fault
    out[t] = sum;
== misaligned_vector kind=misaligned
    int4 x = *(const int4*)(a + t);  // fault
    out[t] = x.x + x.y + x.z + x.w;
== misaligned_pair kind=misaligned
    *(int2*)(out + 3 * t) = make_int2(a[t], 1);  // fault
== misaligned_word kind=misaligned
    out[t] = *(const int*)((const char*)a + t);  // fault
== misaligned_shared kind=misaligned
    __shared__ alignas(16) int s[320];
    for (int i = t; i < 320; i += 64) s[i] = a[i];
    __syncthreads();
    int4 x = *(int4*)(s + t);  // fault
    out[t] = x.x + x.y + x.z + x.w;
"""

HOPPER = r"""
== mbarrier_never_initialised kind=barrier
    __shared__ unsigned long long b;
    if (a[0]) MB_INIT(&b, 64);
    __syncthreads();
    MB_ARRIVE(&b);  // fault
    out[t] = a[t];
== mbarrier_used_before_a_barrier
    __shared__ unsigned long long b;
    if (t == 0) MB_INIT(&b, 64);
    MB_ARRIVE(&b);  // fault
    out[t] = a[t];
== mbarrier_lacks_arrivals kind=barrier
    __shared__ unsigned long long b;
    if (t == 0) MB_INIT(&b, 65);
    __syncthreads();
    MB_ARRIVE(&b);
    MB_WAIT(&b, 0);  // fault
    out[t] = a[t];
== mbarrier_arrives_too_often kind=barrier
    __shared__ unsigned long long b;
    if (t == 0) MB_INIT(&b, 32);
    __syncthreads();
    if (t < 32) MB_ARRIVE(&b);
    if (t == 40) MB_ARRIVE_TIMES(&b, 33);  // fault
    out[t] = a[t];
== mbarrier_of_no_arrivals kind=barrier
    __shared__ unsigned long long b;
    if (t == 0) MB_INIT(&b, a[0]);  // fault
    out[t] = a[t];
== mbarrier_misaligned kind=misaligned
    __shared__ alignas(8) int b[4];
    if (t == 0) MB_INIT(b + 1, 64);  // fault
    out[t] = a[t];
== mbarrier_wrong_parity
    __shared__ unsigned long long b;
    __shared__ int s[64];
    if (t == 0) MB_INIT(&b, 32);
    __syncthreads();
    if (t < 32) {
        MB_WAIT(&b, 1);
        out[t] = s[31 - t];
    } else {
        s[t - 32] = a[t];  // fault
        MB_ARRIVE(&b);
    }
== mbarrier_parity_of_the_next_phase kind=barrier
    __shared__ unsigned long long b;
    __shared__ int s[64];
    if (t == 0) MB_INIT(&b, 64);
    __syncthreads();
    s[t] = a[t];
    MB_ARRIVE(&b);
    MB_WAIT(&b, 1);  // fault
    out[t] = s[63 - t];
== mbarrier_without_wait
    __shared__ unsigned long long b;
    __shared__ int s[64];
    if (t == 0) MB_INIT(&b, 64);
    __syncthreads();
    s[t] = a[t];
    MB_ARRIVE(&b);
    out[t] = s[63 - t];  // fault
== mbarrier_arrives_early
    __shared__ unsigned long long b;
    __shared__ int s[64];
    if (t == 0) MB_INIT(&b, 64);
    __syncthreads();
    MB_ARRIVE(&b);
    s[t] = a[t];
    MB_WAIT(&b, 0);
    out[t] = s[63 - t];  // fault
== mbarrier_and_a_named_barrier_of_a_half
    __shared__ unsigned long long b;
    __shared__ int s[64];
    if (t == 0) MB_INIT(&b, 64);
    __syncthreads();
    s[t] = a[t];
    if (t < 32) BAR_SYNC(1, 32);
    int x = s[t ^ 1];  // fault
    MB_ARRIVE(&b);
    MB_WAIT(&b, 0);
    out[t] = x;
== mbarrier_and_an_arrival_that_does_not_wait
    __shared__ unsigned long long b;
    __shared__ int s[64];
    if (t == 0) MB_INIT(&b, 64);
    __syncthreads();
    if (t < 32) {
        s[t] = a[t];
        BAR_ARRIVE(1, 64);
        s[t] = a[t] + 1;
    } else {
        BAR_SYNC(1, 64);
        out[t] = s[63 - t];  // fault
    }
    MB_ARRIVE(&b);
    MB_WAIT(&b, 0);
== mbarrier_and_a_warp_barrier_of_a_half threads=32
    __shared__ unsigned long long b;
    __shared__ int s[32];
    if (t == 0) MB_INIT(&b, 32);
    __syncthreads();
    s[t] = a[t];
    if (t < 16) __syncwarp(0xffffu);
    out[t] = s[t ^ 16];  // fault
    MB_ARRIVE(&b);
    MB_WAIT(&b, 0);
== bulk_load_without_wait
    __shared__ unsigned long long b;
    __shared__ alignas(128) int s[64];
    if (t == 0) {
        MB_INIT(&b, 1);
        MB_EXPECT(&b, 256);
        BULK_LOAD(s, a, 256, &b);
    }
    __syncthreads();
    out[t] = s[t];  // fault
== bulk_load_that_nobody_expects kind=barrier
    __shared__ unsigned long long b;
    __shared__ alignas(128) int s[64];
    if (t == 0) {
        MB_INIT(&b, 1);
        MB_EXPECT(&b, 512);
        BULK_LOAD(s, a, 256, &b);
    }
    __syncthreads();
    MB_WAIT(&b, 0);  // fault
    out[t] = s[t];
== bulk_load_over_what_is_read
    __shared__ unsigned long long b;
    __shared__ alignas(128) int s[64];
    if (t == 0) MB_INIT(&b, 1);
    s[t] = a[t];
    __syncthreads();
    int x = s[63 - t];
    if (t == 0) {
        MB_EXPECT(&b, 256);
        BULK_LOAD(s, a + 64, 256, &b);  // fault
    }
    MB_WAIT(&b, 0);
    out[t] = x + s[t];
== bulk_load_past_the_end kind=out_of_bounds
    __shared__ unsigned long long b;
    __shared__ alignas(128) int s[64];
    if (t == 0) {
        MB_INIT(&b, 1);
        MB_EXPECT(&b, 256);
        BULK_LOAD(s, a + 4080, 256, &b);  // fault
    }
    __syncthreads();
    MB_WAIT(&b, 0);
    out[t] = s[t];
== bulk_load_misaligned kind=misaligned
    __shared__ unsigned long long b;
    __shared__ alignas(128) int s[64];
    if (t == 0) {
        MB_INIT(&b, 1);
        MB_EXPECT(&b, 128);
        BULK_LOAD(s, a + 1, 128, &b);  // fault
    }
    __syncthreads();
    out[t] = a[t];
== bulk_store_without_proxy_fence
    __shared__ alignas(128) int s[64];
    s[t] = a[t];
    __syncthreads();
    if (t == 0) {
        BULK_STORE(out, s, 256);  // fault
        BULK_COMMIT();
        BULK_WAIT(0);
    }
== bulk_store_whose_source_changes
    __shared__ alignas(128) int s[64];
    s[t] = a[t];
    PROXY_FENCE();
    __syncthreads();
    if (t == 0) {
        BULK_STORE(out, s, 256);
        BULK_COMMIT();
    }
    s[t] = 0;  // fault
    if (t == 0) BULK_WAIT(0);
== bulk_store_before_a_barrier
    __shared__ alignas(128) int s[64];
    s[t] = a[t];
    PROXY_FENCE();
    if (t == 0) {
        BULK_STORE(out, s, 256);  // fault
        BULK_COMMIT();
        BULK_WAIT(0);
    }
== bulk_store_of_what_nobody_wrote kind=uninitialised
    __shared__ alignas(128) int s[64];
    if (t < 32) s[t] = a[t];
    PROXY_FENCE();
    __syncthreads();
    if (t == 0) {
        BULK_STORE(out, s, 256);  // fault
        BULK_COMMIT();
        BULK_WAIT(0);
    }
"""

CASES = [*cases(BARRIERS, "barrier"), *cases(MEMORY), *cases(HOPPER, "race")]
