__global__ void transpose(int m, int n, const float* x, float* y)
{
    __shared__ float tile[32 * 33];
    const int left = blockIdx.x * 32, top = blockIdx.y * 32;
    // Numbered anew: every warp takes a row, and its lanes the columns.
    const int thread = threadIdx.y * 32 + threadIdx.x, lane = thread & 31, warp = thread >> 5;
    for (int row = warp; row < min(32, m - top); row += 8)
        if (lane < n - left) tile[row * 33 + lane] = x[(top + row) * n + left + lane];
    __syncthreads();
    for (int row = warp; row < min(32, n - left); row += 8)
        if (lane < m - top) y[(left + row) * m + top + lane] = tile[lane * 33 + row];
}
