__global__ void softmax(int n, const float* x, float* y)
{
    // One warp does it.
    if (threadIdx.x >= 32) return;
    const float* row = x + blockIdx.x * n;
    float* out = y + blockIdx.x * n;
    float largest = -3.0e38f;
    for (int i = threadIdx.x; i < n; i += 32) largest = row[i] > largest ? row[i] : largest;
    for (int by = 1; by < 32; by *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, by));
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) sum += expf(row[i] - largest);
    for (int by = 1; by < 32; by *= 2) sum += __shfl_xor_sync(0xffffffff, sum, by);
    for (int i = threadIdx.x; i < n; i += 32) out[i] = expf(row[i] - largest) / sum;
}
