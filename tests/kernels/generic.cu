// Generic pointers: the same function on global, shared, local and constant memory.

__device__ float module_values[8] = {1, 2, 3, 4, 5, 6, 7, 8};

__device__ __noinline__ float total(const float* p, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += p[i];
    return sum;
}

extern "C" __global__ void anywhere(const float* in, float* out) {
    __shared__ float tile[64];
    float mine[4];
    int t = threadIdx.x;
    for (int i = 0; i < 4; i++) mine[i] = t + i;
    tile[t] = in[t];
    __syncthreads();
    const float* p;
    int n;
    switch (t % 4) {
        case 0: p = in + t; n = 3; break;
        case 1: p = tile; n = t; break;
        case 2: p = mine; n = 4; break;
        default: p = module_values; n = t % 8;
    }
    out[t] = total(p, n);
}

extern "C" __global__ void stores(float* out) {
    __shared__ float tile[32];
    int t = threadIdx.x;
    tile[t] = 0;
    __syncthreads();
    float* p = t < 16 ? &out[t] : &tile[t];
    *p = t * 2.0f;
    __syncthreads();
    if (t >= 16) out[t] = tile[t] + 1;
}

extern "C" __global__ void spaces(int* out, const int* in) {
    __shared__ int tile[4];
    int mine[4];
    int t = threadIdx.x;
    mine[t & 3] = t;
    tile[t & 3] = 0;
    const void* p = t % 3 == 0 ? (const void*)in : t % 3 == 1 ? (void*)tile : (void*)mine;
    out[t] = __isGlobal(p) + 2 * __isShared(p) + 4 * __isLocal(p) +
             8 * (__cvta_generic_to_shared(tile + 1) - __cvta_generic_to_shared(tile));
}

extern "C" __global__ void generic_atomics(int* out) {
    __shared__ int sum;
    int t = threadIdx.x;
    if (t == 0) sum = 0;
    __syncthreads();
    int* p = t & 1 ? &sum : out;
    atomicAdd(p, t);
    __syncthreads();
    if (t == 0) out[1] = sum;
}
