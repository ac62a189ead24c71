__global__ void axpy(int n, float a, const float* x, float* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) {
        float4 from = ((const float4*)x)[i];
        float4 to = ((float4*)y)[i];
        to.x += a * from.x;
        to.y += a * from.y;
        to.z += a * from.z;
        to.w += a * from.w;
        ((float4*)y)[i] = to;
    }
    if (i < n % 4) {
        int last = n - n % 4 + i;
        y[last] += a * x[last];
    }
}
