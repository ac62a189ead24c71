__global__ void smooth(int n, const float* x, float* y)
{
    const float* own = x + blockIdx.x * 128;
    y[blockIdx.x * 128 + threadIdx.x] = own[127 - threadIdx.x] + own[threadIdx.x];
}
