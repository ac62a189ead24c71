#define TILE 16

__global__ void product(int m, int n, int k, const float* a, const float* b, float* c)
{
    __shared__ float sa[2][TILE][TILE];
    __shared__ float sb[2][TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty;
    int col = blockIdx.x * TILE + tx;
    float sum = 0;
    sa[0][ty][tx] = row < m && tx < k ? a[row * k + tx] : 0;
    sb[0][ty][tx] = ty < k && col < n ? b[ty * n + col] : 0;
    __syncthreads();
    int now = 0;
    for (int p = 0; p < k; p += TILE) {
        int q = p + TILE;
        float next_a = row < m && q + tx < k ? a[row * k + q + tx] : 0;
        float next_b = q + ty < k && col < n ? b[(q + ty) * n + col] : 0;
        for (int i = 0; i < TILE; ++i) {
            sum += sa[now][ty][i] * sb[now][i][tx];
        }
        now = 1 - now;
        sa[now][ty][tx] = next_a;
        sb[now][ty][tx] = next_b;
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
