__global__ void scale_rows(int m, int n, const float* s, const float* x, float* y)
{
    // The block's rows once again, by warps: 8 warps, each two rows of 16.
    int thread = threadIdx.y * 16 + threadIdx.x, lane = thread % 32, warp = thread / 32;
    int row = blockIdx.y * 16 + warp + lane / 16 * 8;
    int col = blockIdx.x * 16 + lane % 16;
    if (row < m && col < n) y[row * n + col] = s[row] * x[row * n + col];
}
