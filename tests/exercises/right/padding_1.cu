__global__ void transpose(int m, int n, const float* x, float* y)
{
    __shared__ float tile[32 * 35];
    int tx = threadIdx.x, ty = threadIdx.y, bx = blockIdx.x * 32, by = blockIdx.y * 32;
    for (int j = 24; j >= 0; j -= 8)
        if (by + ty + j < m && bx + tx < n) tile[tx * 35 + ty + j] = x[(by + ty + j) * n + bx + tx];
    __syncthreads();
    for (int j = 0; j < 32; j += 8)
        if (bx + ty + j < n && by + tx < m) y[(bx + ty + j) * m + by + tx] = tile[(ty + j) * 35 + tx];
}
