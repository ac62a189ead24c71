__global__ void transpose(int m, int n, const float* x, float* y)
{
    __shared__ float tile[32 * 32];
    int tx = threadIdx.x, ty = threadIdx.y, bx = blockIdx.x * 32, by = blockIdx.y * 32;
#pragma unroll
    for (int j = 24; j >= 0; j -= 8) {
        int row = by + ty + j;
        // Turned over on the way in.
        if (row < m && bx + tx < n) tile[tx * 32 + ty + j] = x[(size_t)row * n + bx + tx];
    }
    __syncthreads();
    for (int j = 0; j < 32; j += 8)
        if (bx + ty + j < n && by + tx < m) y[(size_t)(bx + ty + j) * m + by + tx] = tile[(ty + j) * 32 + tx];
}
