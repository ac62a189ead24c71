__global__ void scale_matrix(int m, int n, float a, float* x, int ld)
{
    int col = blockIdx.x * 16 + threadIdx.x;
    int row = blockIdx.y * 16 + threadIdx.y;
    if (row < m && col < n) {
        x[row * ld + col] *= a;
    }
}
