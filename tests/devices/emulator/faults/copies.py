"""Asynchronous copies, mbarriers and bulk copies that are not waited for, or used wrongly."""

from __future__ import annotations

from faults.cases import cases

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
== mbarrier_and_arrivals_that_nobody_waits_for
    __shared__ unsigned long long b;
    __shared__ int s[64];
    if (t == 0) MB_INIT(&b, 64);
    __syncthreads();
    s[t] = a[t];
    BAR_ARRIVE(1, 64);
    if (t < 32) {
        BAR_SYNC(1, 32);
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
== bulk_load_over_what_a_thread_wrote_without_proxy_fence
    __shared__ unsigned long long b;
    __shared__ alignas(128) int s[128];
    if (t == 0) {
        MB_INIT(&b, 1);
        PROXY_FENCE();
    }
    s[t] = s[t + 64] = 0;
    __syncthreads();
    if (t == 0) {
        MB_EXPECT(&b, 256);
        BULK_LOAD(s, a, 256, &b);  // fault
    }
    MB_WAIT(&b, 0);
    out[t] = s[t] + s[t + 64];
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

CASES = [*cases(COPIES, "race"), *cases(HOPPER, "race")]
