__global__ void scale_matrix(int m, int n, float a, float* x, int ld)
{
    int j = blockIdx.x * 16 + threadIdx.y;  // the other way round: as right, and slower
    int i = blockIdx.y * 16 + threadIdx.x;
    bool inside = j < n & i < m;
    if (inside) *(x + j + i * ld) *= a;
}
