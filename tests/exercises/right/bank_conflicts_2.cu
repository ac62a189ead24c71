__global__ void row_sums(const float* x, float* y)
{
    __shared__ float tile[1024];
    unsigned t = threadIdx.x;
    for (unsigned row = 0; row < 32; ++row) tile[row * 32 + (t ^ row)] = x[blockIdx.x * 1024 + row * 32 + t];
    __syncwarp();
    float sum = 0;
    for (unsigned i = 0; i < 32; ++i) sum += tile[t * 32 + (t ^ i)];
    y[blockIdx.x * 32 + t] = sum;
}
