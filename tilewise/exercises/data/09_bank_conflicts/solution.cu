__global__ void row_sums(const float* x, float* y)
{
    __shared__ float tile[32][32];
    int t = threadIdx.x;
    x += blockIdx.x * 32 * 32;
    for (int row = 0; row < 32; ++row) {
        tile[row][t] = x[row * 32 + t];
    }
    __syncwarp();
    float sum = 0;
    for (int i = 0; i < 32; ++i) {
        sum += tile[t][(t + i) % 32];
    }
    y[blockIdx.x * 32 + t] = sum;
}
