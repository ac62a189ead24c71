__global__ void transpose(int m, int n, const float* x, float* y)
{
    __shared__ float tile[32][32];  // swizzled instead of padded
    int tx = threadIdx.x, bx = blockIdx.x * 32, by = blockIdx.y * 32;
    for (int i = threadIdx.y; i < 32; i += 8)
        if (by + i < m && bx + tx < n) tile[i][tx ^ i] = x[(by + i) * n + bx + tx];
    __syncthreads();
    for (int i = threadIdx.y; i < 32; i += 8)
        if (bx + i < n && by + tx < m) y[(bx + i) * m + by + tx] = tile[tx][i ^ tx];
}
