"""Right kernels with asynchronous copies, mbarriers and bulk copies."""

from __future__ import annotations

from faults.cases import cases

COPIES = r"""
== copies_double_buffered
    __shared__ int s[2][64];
    COPY(&s[0][t], a + t);
    COMMIT();
    int sum = 0;
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        COPY(&s[(p + 1) & 1][t], a + (p + 1) * 64 + t);
        COMMIT();
        WAIT(1);
        __syncthreads();
        sum += s[p & 1][63 - t];
        __syncthreads();
    }
    out[t] = sum;
== copies_three_buffers_one_barrier
    __shared__ int s[3][64];
    for (int p = 0; p < 2; ++p) {
        COPY(&s[p][t], a + p * 64 + t);
        COMMIT();
    }
    int sum = 0;
#pragma unroll 1
    for (int p = 0; p < 6; ++p) {
        WAIT(1);
        __syncthreads();
        COPY(&s[(p + 2) % 3][t], a + (p + 2) * 64 + t);
        COMMIT();
        sum += s[p % 3][63 - t];
    }
    out[t] = sum;
== copy_to_own_place
    __shared__ int s[64];
    COPY(&s[t], a + t);
    WAIT_ALL();
    out[t] = s[t];
== copy_of_a_warp threads=32
    __shared__ int s[32];
    COPY(&s[t], a + t);
    WAIT_ALL();
    __syncwarp();
    out[t] = s[31 - t];
== copies_of_a_part_are_waited_for_later
    __shared__ int s[128];
    COPY(&s[t], a + t);
    COMMIT();
    if (t < 32) COPY(&s[64 + t], a + 64 + t);
    COMMIT();
    WAIT(1);
    __syncthreads();
    int x = s[63 - t];
    WAIT(0);
    __syncthreads();
    out[t] = x + s[64 + (t & 31)];
"""

HOPPER = r"""
== mbarrier_as_a_block_s_barrier
    __shared__ unsigned long long b;
    __shared__ int s[64];
    if (t == 0) MB_INIT(&b, 64);
    __syncthreads();
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
        s[t] = a[p * 64 + t];
        MB_ARRIVE(&b);
        MB_WAIT(&b, 0);
        out[p * 64 + t] = s[63 - t];
        MB_ARRIVE(&b);
        MB_WAIT(&b, 1);
    }
== bulk_load_and_store
    __shared__ unsigned long long b;
    __shared__ alignas(128) int s[64];
    if (t == 0) {
        MB_INIT(&b, 1);
        MB_EXPECT(&b, 256);
        BULK_LOAD(s, a, 256, &b);
    }
    __syncthreads();
    MB_WAIT(&b, 0);
    int x = s[63 - t];
    __syncthreads();
    s[t] = x + 1;
    PROXY_FENCE();
    __syncthreads();
    if (t == 0) {
        BULK_STORE(out, s, 256);
        BULK_COMMIT();
        BULK_WAIT(0);
    }
== bulk_load_over_what_threads_wrote
    __shared__ unsigned long long b;
    __shared__ alignas(128) int s[128];
    if (t == 0) MB_INIT(&b, 1);
    s[t] = s[t + 64] = 0;
    PROXY_FENCE();
    __syncthreads();
    if (t == 0) {
        MB_EXPECT(&b, 256);
        BULK_LOAD(s, a, 256, &b);
    }
    MB_WAIT(&b, 0);
    out[t] = s[t] + s[t + 64];
== mbarrier_and_arrivals_of_threads_that_end
    __shared__ unsigned long long b;
    __shared__ int s[64];
    if (t == 0) MB_INIT(&b, 64);
    __syncthreads();
    s[t] = a[t];
    MB_ARRIVE(&b);
    if (t < 32) {
        s[t] = a[t] + 1;
        BAR_ARRIVE(1, 64);
        asm volatile("exit;");
    }
    MB_WAIT(&b, 0);
    BAR_SYNC(1, 64);
    out[t] = s[63 - t];
== mbarrier_and_arrivals_used_again
    __shared__ unsigned long long b;
    __shared__ int s[64];
    if (t == 0) MB_INIT(&b, 64);
    __syncthreads();
    BAR_ARRIVE(1, 64);
    s[t] = a[t];
    if (t < 32) {
        BAR_SYNC(1, 64);
        out[t] = s[63 - t];
    } else {
        BAR_ARRIVE(1, 64);
    }
== mbarrier_and_named_barriers
    __shared__ unsigned long long b;
    __shared__ int s[64];
    if (t == 0) MB_INIT(&b, 64);
    __syncthreads();
    s[t] = a[t];
    BAR_SYNC(1 + t / 32, 32);
    int x = s[t ^ 31];
    MB_ARRIVE(&b);
    MB_WAIT(&b, 0);
    s[t ^ 32] = x;
    MB_ARRIVE(&b);
    MB_WAIT(&b, 1);
    out[t] = s[t];
"""

CASES = [*cases(COPIES), *cases(HOPPER)]
