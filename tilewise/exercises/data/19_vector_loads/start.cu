// y[i] = a * x[i] + y[i]. Each thread takes four neighbours; the rest of n / 4 is done one by one.
__global__ void axpy(int n, float a, const float* x, float* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) {
        float4 from = ((const float4*)x)[i];
        float4 to = ((float4*)y)[i];
        // TODO: all four of them
        to.x += a * from.x;
        ((float4*)y)[i] = to;
    }
    // TODO: the last n % 4 elements
}
