"""Accesses outside arrays, between elements, and to what nobody wrote."""

from __future__ import annotations

from faults.cases import cases

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

CASES = cases(MEMORY)
