// Shared memory: static, dynamic, both, of several types and sizes.

extern "C" __global__ void reverse(const int* a, int* out) {
    __shared__ int tile[256];
    int t = threadIdx.x, n = blockDim.x;
    tile[t] = a[blockIdx.x * n + t];
    __syncthreads();
    out[blockIdx.x * n + t] = tile[n - 1 - t];
}

extern "C" __global__ void dynamic(int n, const float* a, float* out) {
    extern __shared__ float buffer[];
    float* low = buffer;
    double* high = reinterpret_cast<double*>(buffer + 2 * blockDim.x);
    int t = threadIdx.x;
    low[t] = a[t];
    high[t] = a[t] * 2.0;
    __syncthreads();
    int s = (t + 1) % n;
    out[t] = low[s] + (float)high[s];
}

extern "C" __global__ void both(const unsigned char* a, unsigned char* out) {
    __shared__ unsigned char bytes[64];
    __shared__ short halves[64];
    extern __shared__ char more[];
    int t = threadIdx.x;
    bytes[t] = a[t];
    halves[t] = (short)(a[t] * 3);
    more[t] = (char)(a[t] + 1);
    __syncthreads();
    int s = t ^ 21;
    out[t] = bytes[s] + halves[s] + more[s];
}

extern "C" __global__ void transpose(int n, const float* a, float* out) {
    __shared__ float tile[16][17];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < n && y < n) tile[threadIdx.y][threadIdx.x] = a[y * n + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    if (x < n && y < n) out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}

struct Cell {
    int key;
    double value;
};

extern "C" __global__ void structures(const double* a, double* out) {
    __shared__ Cell cells[32];
    int t = threadIdx.x;
    cells[t].key = 31 - t;
    cells[t].value = a[t];
    __syncthreads();
    out[t] = cells[cells[t].key].value + cells[t].key;
}
