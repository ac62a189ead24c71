#define RADIUS 3
#define BLOCK 128

__global__ void stencil(int n, const float* x, float* y)
{
    __shared__ float tile[BLOCK + 2 * RADIUS];
    int t = threadIdx.x;
    int i = blockIdx.x * BLOCK + t;
    tile[t + RADIUS] = i < n ? x[i] : 0;
    if (t < RADIUS) {
        int left = i - RADIUS;
        int right = i + BLOCK;
        tile[t] = left >= 0 ? x[left] : 0;
        tile[t + RADIUS + BLOCK] = right < n ? x[right] : 0;
    }
    __syncthreads();
    if (i < n) {
        float sum = 0;
        for (int d = 0; d <= 2 * RADIUS; ++d) {
            sum += tile[t + d];
        }
        y[i] = sum;
    }
}
