// Loads of memory that nobody wrote: what a compiler reads before it knows whether it is wanted,
// and, in the lower half, values that decide something; a comment "use: KERNEL" marks where.

__device__ __noinline__ bool get(int i, int n, const int* a, int* value) {
    if (i >= n) return false;
    *value = a[i];
    return true;
}

// The flag is only known under the if, and value is read before.
extern "C" __global__ void flag(int n, const int* a, const int* unset, int* out) {
    int i = threadIdx.x;
    bool found = false;
    int value = unset[i];
    if (i < n) found = a[i] < 0;
    out[i] = found ? value : -1;
}

extern "C" __global__ void out_parameter(int n, const int* a, const int* unset, int* out) {
    int value;
    out[threadIdx.x] = get(threadIdx.x, n, a, &value) ? value : -1;
}

extern "C" __global__ void compared(int n, const int* a, const int* unset, int* out) {
    int value;
    out[threadIdx.x] = get(threadIdx.x, n, a, &value) && value % 3 == 1;
}

extern "C" __global__ void local_array(int n, const int* a, const int* unset, int* out) {
    int kept[8], count = 0;
    for (int j = 0; j < n; ++j)
        if (a[j] % 2) kept[count++ & 7] = a[j];
    int most = -1, sum = 0;
    for (int j = 0; j < 8; ++j) {
        if (j < count && kept[j] > most) most = kept[j];
        sum += j < count ? kept[j] * 3 : 0;
    }
    out[threadIdx.x] = most + sum;
}

extern "C" __global__ void by_shared(int n, const int* a, const int* unset, int* out) {
    __shared__ int tile[32];
    int i = threadIdx.x, next = i + 1 & 31, value;
    get(i, n, a, &value);
    tile[i] = value;
    __syncthreads();
    out[i] = next < n ? tile[next] : -1;
}

struct Record {
    char kind;
    int values[4];
};

__device__ __noinline__ int second(Record record, int n) { return n ? record.values[1] : -1; }

extern "C" __global__ void by_value(int n, const int* a, const int* unset, int* out) {
    Record record;
    record.kind = 1;
    get(threadIdx.x, n, a, &record.values[1]);
    out[threadIdx.x] = second(record, threadIdx.x < n);
}

extern "C" __global__ void printed(int n, const int* a, const int* unset, int* out) {
    int value;
    bool found = get(threadIdx.x, n, a, &value);
    if (threadIdx.x < 12) printf("%d ", found ? value : -1);
}

// Values that decide.

extern "C" __global__ void stores(int n, const int* a, const int* unset, int* out) {
    int i = threadIdx.x;
    int value = unset[i];
    __syncthreads();
    int sum = value + a[i];
    out[i] = sum;  // use: stores
}

extern "C" __global__ void branches(int n, const int* a, const int* unset, int* out) {
    int value = unset[threadIdx.x];
    __syncthreads();
    if (value > 2) __nanosleep(1);  // use: branches
    out[threadIdx.x] = 1;
}

extern "C" __global__ void addresses(int n, const int* a, const int* unset, int* out) {
    int value = unset[threadIdx.x];
    __syncthreads();
    out[value & 7] = 1;  // use: addresses
}

extern "C" __global__ void shuffles(int n, const int* a, const int* unset, int* out) {
    int value = unset[threadIdx.x];
    __syncthreads();
    value = __shfl_xor_sync(-1u, value, 1);
    out[threadIdx.x] = value;  // use: shuffles
}

extern "C" __global__ void adds(int n, const int* a, const int* unset, int* out) {
    int value = unset[threadIdx.x];
    __syncthreads();
    atomicAdd(out, value);  // use: adds
}

extern "C" __global__ void prints(int n, const int* a, const int* unset, int* out) {
    int value = unset[threadIdx.x];
    __syncthreads();
    printf("%d: %d\n", threadIdx.x, value);  // use: prints
}

extern "C" __global__ void passes(int n, const int* a, const int* unset, int* out) {
    Record record;
    record.values[0] = 5;
    int value = unset[threadIdx.x];
    __syncthreads();
    record.values[1] = value;
    value = second(record, n);
    out[threadIdx.x] = value;  // use: passes
}

extern "C" __global__ void hands_on(int n, const int* a, const int* unset, int* out) {
    __shared__ int tile[32];
    tile[threadIdx.x] = unset[threadIdx.x];
    __syncthreads();
    int value = tile[threadIdx.x ^ 1];
    out[threadIdx.x] = value;  // use: hands_on
}

extern "C" __global__ void selects(int n, const int* a, const int* unset, int* out) {
    int value = unset[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = value & 4 ? 17 : a[threadIdx.x];  // use: selects
}

extern "C" __global__ void counts(int n, const int* a, const int* unset, int* out) {
    __shared__ int tile[32];
    tile[threadIdx.x] = unset[threadIdx.x];
    __syncthreads();
    atomicAdd(&tile[threadIdx.x & 7], 1);  // use: counts
}
