__global__ void row_sums(const float* x, float* y)
{
    __shared__ float tile[32 * 33];
    for (int i = threadIdx.x; i < 1024; i += 32) tile[i / 32 * 33 + i % 32] = x[blockIdx.x * 1024 + i];
    __syncthreads();
    float sum = 0;
    for (int i = 31; i >= 0; --i) sum += tile[threadIdx.x * 33 + i];
    y[blockIdx.x * 32 + threadIdx.x] = sum;
}
