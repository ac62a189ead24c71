#define TILE 16

__global__ void product(int m, int n, int k, const float* a, const float* b, float* c)
{
    __shared__ float sa[TILE][TILE];
    __shared__ float sb[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty;
    int col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int p = 0; p < k; p += TILE) {
        sa[ty][tx] = row < m && p + tx < k ? a[row * k + p + tx] : 0;
        sb[ty][tx] = p + ty < k && col < n ? b[(p + ty) * n + col] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) {
            sum += sa[ty][i] * sb[i][tx];
        }
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
