#define TILE 32
#define DEEP 8
#define EACH 4
#define APART (TILE / EACH)

__global__ void product(int m, int n, int k, const float* a, const float* b, float* c)
{
    __shared__ float sa[TILE][DEEP];
    __shared__ float sb[DEEP][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
    int thread = ty * APART + tx;
    float sum[EACH][EACH] = {};
    for (int p = 0; p < k; p += DEEP) {
        for (int i = thread; i < TILE * DEEP; i += APART * APART) {
            int row = top + i / DEEP, at = p + i % DEEP;
            sa[i / DEEP][i % DEEP] = row < m && at < k ? a[row * k + at] : 0;
        }
        for (int i = thread; i < DEEP * TILE; i += APART * APART) {
            int at = p + i / TILE, col = left + i % TILE;
            sb[i / TILE][i % TILE] = at < k && col < n ? b[at * n + col] : 0;
        }
        __syncthreads();
        for (int i = 0; i < DEEP; ++i) {
            float of_a[EACH], of_b[EACH];
            for (int y = 0; y < EACH; ++y) of_a[y] = sa[ty + y * APART][i];
            for (int x = 0; x < EACH; ++x) of_b[x] = sb[i][tx + x * APART];
            for (int y = 0; y < EACH; ++y) {
                for (int x = 0; x < EACH; ++x) sum[y][x] += of_a[y] * of_b[x];
            }
        }
        __syncthreads();
    }
    for (int y = 0; y < EACH; ++y) {
        for (int x = 0; x < EACH; ++x) {
            int row = top + ty + y * APART, col = left + tx + x * APART;
            if (row < m && col < n) c[row * n + col] = sum[y][x];
        }
    }
}
