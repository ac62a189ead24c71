__global__ void axpy(int n, float a, const float* __restrict__ x, float* __restrict__ y)
{
    int first = (blockIdx.x * 256 + threadIdx.x) * 4;
    if (first + 4 <= n) {
        float4 u = *reinterpret_cast<const float4*>(x + first), v = *reinterpret_cast<float4*>(y + first);
        *reinterpret_cast<float4*>(y + first) =
            make_float4(a * u.x + v.x, a * u.y + v.y, a * u.z + v.z, a * u.w + v.w);
    } else {
        for (int i = first; i < n; ++i) y[i] = fmaf(a, x[i], y[i]);
    }
}
