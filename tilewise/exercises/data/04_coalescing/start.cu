// y[row][col] = s[row] * x[row][col]; x and y are m x n. Right, and slow: why?
__global__ void scale_rows(int m, int n, const float* s, const float* x, float* y)
{
    int row = blockIdx.y * 16 + threadIdx.x;
    int col = blockIdx.x * 16 + threadIdx.y;
    if (row < m && col < n) {
        y[row * n + col] = s[row] * x[row * n + col];
    }
}
