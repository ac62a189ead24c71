// Whole algorithms, as people write them.

#ifndef TILE
#define TILE 16
#endif

extern "C" __global__ void tiled(int m, int n, int k, const float* a, const float* b, float* c) {
    __shared__ float sa[TILE][TILE], sb[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int p = 0; p < k; p += TILE) {
        sa[ty][tx] = row < m && p + tx < k ? a[row * k + p + tx] : 0;
        sb[ty][tx] = col < n && p + ty < k ? b[(p + ty) * n + col] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum = fmaf(sa[ty][i], sb[i][tx], sum);
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

extern "C" __global__ void block_reduce(int n, const int* a, int* out) {
    __shared__ int tile[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + t;
    int x = i < n ? a[i] : 0;
    if (i + blockDim.x < n) x += a[i + blockDim.x];
    tile[t] = x;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (t < d) tile[t] += tile[t + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = tile[0];
}

extern "C" __global__ void block_scan(const int* a, int* out) {
    __shared__ int tile[2][128];
    int t = threadIdx.x, from = 0;
    tile[0][t] = a[blockIdx.x * 128 + t];
    for (int d = 1; d < 128; d <<= 1) {
        __syncthreads();
        tile[from ^ 1][t] = tile[from][t] + (t >= d ? tile[from][t - d] : 0);
        from ^= 1;
    }
    out[blockIdx.x * 128 + t] = tile[from][t];
}

extern "C" __global__ void bitonic(int* a) {
    __shared__ int tile[128];
    int t = threadIdx.x;
    tile[t] = a[t];
    for (int k = 2; k <= 128; k <<= 1)
        for (int j = k >> 1; j > 0; j >>= 1) {
            __syncthreads();
            int other = t ^ j;
            if (other > t) {
                int x = tile[t], y = tile[other];
                if ((x > y) == ((t & k) == 0)) {
                    tile[t] = y;
                    tile[other] = x;
                }
            }
        }
    __syncthreads();
    a[t] = tile[t];
}

extern "C" __global__ void stencil(int n, const float* a, float* out) {
    __shared__ float tile[64 + 2];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    tile[t + 1] = i < n ? a[i] : 0;
    if (t == 0) tile[0] = i > 0 ? a[i - 1] : 0;
    if (t == 63) tile[65] = i + 1 < n ? a[i + 1] : 0;
    __syncthreads();
    if (i < n) out[i] = 0.25f * tile[t] + 0.5f * tile[t + 1] + 0.25f * tile[t + 2];
}

extern "C" __global__ void mandelbrot(int width, int height, int limit, int* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    double cr = -2.0 + x * 3.0 / width, ci = -1.0 + y * 2.0 / height, zr = 0, zi = 0;
    int i = 0;
    while (i < limit && zr * zr + zi * zi < 4.0) {
        double t = zr * zr - zi * zi + cr;
        zi = 2 * zr * zi + ci;
        zr = t;
        i++;
    }
    out[y * width + x] = i;
}
