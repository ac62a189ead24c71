#define RADIUS 3
#define BLOCK 128

// y[i] = x[i - 3] + ... + x[i + 3], where what lies outside counts as 0.
__global__ void stencil(int n, const float* x, float* y)
{
    __shared__ float tile[BLOCK + 2 * RADIUS];
    int t = threadIdx.x;
    int i = blockIdx.x * BLOCK + t;
    tile[t + RADIUS] = i < n ? x[i] : 0;
    // TODO: the halo, three elements at each side; then a barrier
    __syncthreads();
    if (i < n) {
        float sum = 0;
        // TODO: add up seven elements of the tile
        y[i] = sum;
    }
}
