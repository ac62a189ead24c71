// Kernels that look like faulty ones and are right: no check may find anything in them.

#define ALL 0xffffffffu

extern "C" __global__ void warp_synchronous(const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x, lane = t & 31;
    tile[t] = a[t];
    __syncwarp();
    for (int d = 16; d > 0; d >>= 1) {
        int x = lane < d ? tile[t + d] : 0;
        __syncwarp();
        if (lane < d) tile[t] += x;
        __syncwarp();
    }
    if (lane == 0) out[t / 32] = tile[t];
}

// Only half of the warp takes part in its barrier.
extern "C" __global__ void half_warp(const int* a, int* out) {
    __shared__ int tile[32];
    int t = threadIdx.x;
    if (t < 16) {
        tile[t] = a[t];
        __syncwarp(0xffffu);
        out[t] = tile[15 - t];
    } else {
        out[t] = a[t];
    }
}

extern "C" __global__ void double_buffer(int phases, const int* a, int* out) {
    __shared__ int tile[2][64];
    int t = threadIdx.x, sum = 0;
    tile[0][t] = a[t];
    __syncthreads();
    for (int p = 0; p < phases; p++) {
        if (p + 1 < phases) tile[(p + 1) & 1][t] = a[(p + 1) * 64 + t];
        sum += tile[p & 1][63 - t] * (p + 1);
        __syncthreads();
    }
    out[t] = sum;
}

// Every thread keeps to its own place: no barrier is needed.
extern "C" __global__ void own_place(int rounds, const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    tile[t] = a[t];
    for (int r = 0; r < rounds; r++) tile[t] = tile[t] * 3 + r;
    out[t] = tile[t];
}

// The bytes of one word belong to four threads.
extern "C" __global__ void bytes(const unsigned char* a, unsigned char* out) {
    __shared__ unsigned char tile[64];
    int t = threadIdx.x;
    tile[t] = a[t];
    out[t] = tile[t] + 1;
}

// All who write the flag write the same.
extern "C" __global__ void same_flag(int n, const int* a, int* out) {
    __shared__ int found;
    int t = threadIdx.x;
    if (t == 0) found = 0;
    __syncthreads();
    for (int i = t; i < n; i += blockDim.x)
        if (a[i] < 0) found = 1;
    __syncthreads();
    out[t] = found;
}

extern "C" __global__ void atomics_only(int n, const int* a, int* out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&sum, a[i]);
    __syncthreads();
    if (threadIdx.x == 0) out[0] = sum;
}

// A block's sum: warps by shuffles, the first warp the rest.
extern "C" __global__ void shuffled_sum(int n, const int* a, int* out) {
    __shared__ int partial[32];
    int t = threadIdx.x, x = 0;
    for (int i = t; i < n; i += blockDim.x) x += a[i];
    for (int d = 16; d > 0; d >>= 1) x += __shfl_down_sync(ALL, x, d);
    if ((t & 31) == 0) partial[t / 32] = x;
    __syncthreads();
    if (t < 32) {
        x = t < blockDim.x / 32 ? partial[t] : 0;
        for (int d = 16; d > 0; d >>= 1) x += __shfl_down_sync(ALL, x, d);
        if (t == 0) out[0] = x;
    }
}

// The last steps of a reduction within one warp, where __syncthreads is not needed.
extern "C" __global__ void unrolled_tail(const int* a, int* out) {
    __shared__ int tile[128];
    int t = threadIdx.x;
    tile[t] = a[t];
    __syncthreads();
    if (t < 64) tile[t] += tile[t + 64];
    __syncthreads();
    if (t < 32) {
        tile[t] += tile[t + 32];
        __syncwarp();
        for (int d = 16; d > 0; d >>= 1) {
            if (t < d) tile[t] += tile[t + d];
            __syncwarp();
        }
    }
    if (t == 0) out[0] = tile[0];
}

// Nothing is read where nothing was written: the halo is filled by other threads.
extern "C" __global__ void halo(int n, const int* a, int* out) {
    __shared__ int tile[64 + 4];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    for (int s = t; s < 68; s += 64) {
        int from = (int)(blockIdx.x * 64) + s - 2;
        tile[s] = from >= 0 && from < n ? a[from] : 0;
    }
    __syncthreads();
    if (i < n) out[i] = tile[t] + tile[t + 4];
}

// Threads with nothing to do leave early; the others meet at a barrier.
extern "C" __global__ void leave_early(int n, const int* a, int* out) {
    __shared__ int tile[128];
    int t = threadIdx.x;
    if (t >= n) return;
    tile[t] = a[t];
    __syncthreads();
    out[t] = tile[n - 1 - t];
}

// Global memory that another block wrote is not shared memory: no race is looked for.
extern "C" __global__ void in_place(int n, int* a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = a[i] * 2 + 1;
}

// One array reused with another type after a barrier.
extern "C" __global__ void reused(const double* a, float* out) {
    __shared__ double wide[64];
    int t = threadIdx.x;
    wide[t] = a[t];
    __syncthreads();
    float x = (float)wide[63 - t];
    __syncthreads();
    float* narrow = reinterpret_cast<float*>(wide);
    narrow[t] = x;
    __syncthreads();
    out[t] = narrow[63 - t];
}

// What is loaded and not wanted is not used: padding of a local array is never read.
extern "C" __global__ void partly_set(int n, const int* a, int* out) {
    int mine[8];
    int t = threadIdx.x, count = a[t] & 7;
    for (int i = 0; i <= count; i++) mine[i] = a[t] + i;
    int sum = 0;
    for (int i = count; i >= 0; i--) sum += mine[i] * (i + 1);
    if (t < n) out[t] = sum;
}

// A warp that produces and one that consumes, by two named barriers.
extern "C" __global__ void hand_over(int rounds, const int* a, int* out) {
    __shared__ int tile[32];
    int t = threadIdx.x, lane = t & 31;
    if (t < 32) {
        for (int r = 0; r < rounds; r++) {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            tile[lane] = a[r * 32 + lane];
            asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
    } else {
        int sum = 0;
        for (int r = 0; r < rounds; r++) {
            asm volatile("bar.arrive 1, 64;" ::: "memory");
            asm volatile("bar.sync 2, 64;" ::: "memory");
            sum += tile[31 - lane];
        }
        out[lane] = sum;
    }
}

// Two arrays in shared memory, reached in ways that leave neither.
extern "C" __global__ void two_arrays(int n, const int* a, int* out) {
    __shared__ int left[32];
    __shared__ int right[32];
    __shared__ int* kept;
    int t = threadIdx.x, sum = 0;
    int* from_one = left - 1;
    for (int i = t + 1; i <= 32; i += 32) from_one[i] = a[i - 1];
    right[t ^ 3] = a[t];
    if (t == 0) kept = a[0] > 0 ? right : left;
    __syncthreads();
    int* chosen = n > 5 ? left : right;
    for (int i = 0; i < 32; ++i) sum += chosen[(t + i) % 32];
    int* walks = t & 1 ? right + 31 : left;
    for (int i = 0; i < 32; ++i, walks += t & 1 ? -1 : 1) sum += *walks;
    sum += kept[t];
    __syncthreads();
    int* other = n > 5 ? right : left;
    atomicAdd(other + (a[t] & 31), 1);
    __syncthreads();
    out[t] = sum + right[t];
}
