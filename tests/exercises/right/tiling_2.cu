__global__ void product(int m, int n, int k, const float* a, const float* b, float* c)
{
    // A's tile is stored transposed, with padding.
    __shared__ float at[16][18], sb[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int phase = 0; phase < (k + 15) / 16; ++phase) {
        int pa = phase * 16 + threadIdx.x, pb = phase * 16 + threadIdx.y;
        __syncthreads();
        at[threadIdx.x][threadIdx.y] = row < m && pa < k ? a[row * k + pa] : 0;
        sb[threadIdx.y][threadIdx.x] = col < n && pb < k ? b[pb * n + col] : 0;
        __syncthreads();
        float part = 0;
        for (int i = 0; i < 16; ++i) part += at[i][threadIdx.y] * sb[i][threadIdx.x];
        sum += part;
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
