// Vector loads and stores, every width, and the read-only and cache-hinted ones.

extern "C" __global__ void float_vectors(int n, const float4* a, const float2* b, float4* out4,
                                         float2* out2) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 x = a[i];
    float2 y = b[i];
    out4[i] = make_float4(x.w, x.x + y.x, x.y * y.y, x.z);
    out2[i] = make_float2(y.y, y.x + x.w);
}

extern "C" __global__ void mixed_vectors(int n, const int2* a, const double2* b, const char4* c,
                                         const short4* d, const longlong2* e, int2* out_a,
                                         double2* out_b, char4* out_c, short4* out_d,
                                         longlong2* out_e, const uchar2* f, uchar2* out_f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int2 x = a[i];
    out_a[i] = make_int2(x.y, -x.x);
    double2 y = b[i];
    out_b[i] = make_double2(y.y, y.x + 1);
    char4 z = c[i];
    out_c[i] = make_char4(z.w, z.z, z.y + 1, z.x);
    short4 u = d[i];
    out_d[i] = make_short4(u.y, u.x, u.w, u.z - 1);
    longlong2 v = e[i];
    out_e[i] = make_longlong2(v.y, v.x ^ v.y);
    uchar2 w = f[i];
    out_f[i] = make_uchar2(w.y, w.x + w.y);
}

extern "C" __global__ void triples(int n, const float3* a, float3* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float3 x = a[i];
    out[i] = make_float3(x.z, x.x, x.y);
}

extern "C" __global__ void hinted(int n, const float* __restrict__ a, const float4* __restrict__ b,
                                  float* __restrict__ out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = __ldg(&b[i]);
    float r = __ldg(&a[i]) + v.x + v.y + v.z + v.w;
    float s, t, u;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(s) : "l"(a + i));
    asm volatile("ld.global.cs.f32 %0, [%1];" : "=f"(t) : "l"(a + i));
    asm volatile("ld.volatile.global.f32 %0, [%1];" : "=f"(u) : "l"(a + i));
    asm volatile("st.global.cs.f32 [%0], %1;" ::"l"(out + i), "f"(r + s + t + u) : "memory");
}

extern "C" __global__ void shared_vectors(const float4* a, float4* out) {
    __shared__ float4 tile[64];
    int t = threadIdx.x;
    tile[t] = a[t];
    __syncthreads();
    float4 v = tile[(t + 5) % 64];
    float* flat = reinterpret_cast<float*>(tile);
    v.x += flat[t];
    out[t] = v;
}
