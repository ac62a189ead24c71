// Memory traffic that can be counted by hand.

extern "C" __global__ void strided(int stride, const float* a, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = a[i * stride];
}

extern "C" __global__ void offset(int by, const float* a, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = a[i + by];
}

extern "C" __global__ void same_word(const float* a, float* out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = a[blockIdx.x];
}

extern "C" __global__ void some_lanes(int n, const float* a, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i];
}

template <typename T>
__global__ void copy(const T* a, T* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = a[i];
}

// Shared memory: store with one stride, load with another.
template <typename T>
__global__ void banks(int store_stride, int load_stride, T* out) {
    extern __shared__ char raw[];
    T* tile = reinterpret_cast<T*>(raw);
    int t = threadIdx.x;
    tile[t * store_stride] = T{};
    __syncthreads();
    out[t] = tile[t * load_stride];
}

#ifndef WIDTH
#define WIDTH 32
#endif
extern "C" __global__ void transpose(int n, const float* a, float* out) {
    __shared__ float tile[32][WIDTH];
    int x = threadIdx.x, y = threadIdx.y;
    tile[y][x] = a[(blockIdx.y * 32 + y) * n + blockIdx.x * 32 + x];
    __syncthreads();
    out[(blockIdx.x * 32 + y) * n + blockIdx.y * 32 + x] = tile[x][y];
}

extern "C" __global__ void atomic_traffic(int* bins, const int* a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&bins[a[i]], 1);
}

extern "C" __global__ void atomic_results(unsigned long long* bins, const int* a, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = (int)atomicAdd(&bins[a[i]], 1ull);
}

extern "C" __global__ void arithmetic(const float* a, float* out) {
    int t = threadIdx.x;
    float x = a[t];
    out[t] = fmaf(__fmul_rn(__fadd_rn(x, 1.0f), 2.0f), x, 3.0f);
}

extern "C" __global__ void barriers(int rounds, int* out) {
    for (int r = 0; r < rounds; r++) __syncthreads();
    out[threadIdx.x] = rounds;
}

extern "C" __global__ void branches(int* out) {
    int t = threadIdx.x, x = 0;
    if (t % 32 < 10) {
        for (int i = 0; i < t; i++) x = x * 3 + out[i];
    } else {
        for (int i = t; i < 64; i++) x = x * 5 - out[i];
    }
    out[t + 64] = x;
}
