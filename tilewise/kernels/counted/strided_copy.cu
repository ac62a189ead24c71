// A copy that takes every stride-th element and writes them side by side: with a growing stride a
// warp's load touches more sectors, up to one for each thread, and its store ever the same.

#ifndef real
#define real float
#endif

extern "C" __global__ void strided_copy(int n, int stride, const real* in, real* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[(size_t)i * stride];
}
