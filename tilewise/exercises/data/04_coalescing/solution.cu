__global__ void scale_rows(int m, int n, const float* s, const float* x, float* y)
{
    int row = blockIdx.y * 16 + threadIdx.y;
    int col = blockIdx.x * 16 + threadIdx.x;
    if (row < m && col < n) {
        y[row * n + col] = s[row] * x[row * n + col];
    }
}
