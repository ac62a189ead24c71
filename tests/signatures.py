"""Define kernels of many signatures, for the tests of launches that are written as text."""

from __future__ import annotations

SOURCE = """
struct Pair { int n; float a; double b; };
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
__global__ void transpose(const float* __restrict__ in, float* out, int m, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < m) out[x * m + y] = in[y * n + x];
}
__global__ void histogram(const unsigned char* data, unsigned n, unsigned* bins) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[data[i]], 1u);
}
__global__ void many(bool b, char c, short s, unsigned u, long long l, double d, float4 v, Pair p,
                     const float4* q, const void* any, int* out) {
    out[0] = b; out[1] = c; out[2] = s; out[3] = u; out[4] = l; out[5] = d; out[6] = v.w;
    out[7] = p.n + p.a + p.b; out[8] = q[1].x; out[9] = any == nullptr;
}
template <int N, typename T> __global__ void __launch_bounds__(64) fill(T* x, T value) {
    x[blockIdx.x * N + threadIdx.x] = value;
}
__global__ void total(const double* x, int n, double* sum) {
    double found = 0;
    for (int i = 0; i < n; ++i) found += x[i];
    sum[0] = found;
}
__global__ void reversed(float* y) {
    extern __shared__ float s[];
    s[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
"""
