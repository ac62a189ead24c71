// Kernels with one planted fault each; a comment "fault: KERNEL" marks the line.

extern "C" __global__ void read_past(int n, const float* a, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float here = a[i];
        out[i] = here + a[i + 1];  // fault: read_past
    }
}

extern "C" __global__ void write_past(int rows, int columns, float* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < columns && y <= rows)
        out[y * columns + x] = x;  // fault: write_past
}

extern "C" __global__ void before_start(const int* a, int* out) {
    int t = threadIdx.x;
    out[t] = a[t - 2];  // fault: before_start
}

extern "C" __global__ void null_pointer(const int* a, int* out) {
    int value = a[threadIdx.x];  // fault: null_pointer
    out[threadIdx.x] = value;
}

// Writes whole rows of a matrix whose rows have a gap behind them.
extern "C" __global__ void into_gap(int rows, int width, int pitch, float* out) {
    int t = threadIdx.x;
    for (int r = 0; r < rows; r++)
        if (t <= width) out[r * pitch + t] = 0;  // fault: into_gap
}

extern "C" __global__ void vector_past(int n, const float4* a, float* out) {
    int t = threadIdx.x;
    if (t * 4 < n) {
        float4 v = a[t];  // fault: vector_past
        out[t] = v.x + v.w;
    }
}

extern "C" __global__ void atomic_past(int* bins) {
    atomicAdd(&bins[threadIdx.x], 1);  // fault: atomic_past
}

extern "C" __global__ void shared_past(const int* a, int* out) {
    __shared__ int tile[32];
    int t = threadIdx.x;
    tile[t] = a[t];
    __syncthreads();
    out[t] = tile[t + a[0]];  // fault: shared_past
}

extern "C" __global__ void into_the_next(const int* a, int* out) {
    __shared__ int first[32];
    __shared__ int second[64];
    int t = threadIdx.x;
    first[t] = a[t];
    second[t] = second[t + 32] = a[t];
    __syncthreads();
    out[t] = second[t] + first[t + a[0]];  // fault: into_the_next
}

extern "C" __global__ void before_the_dynamic(const int* a, int* out) {
    __shared__ int fixed[32];
    extern __shared__ int buffer[];
    int t = threadIdx.x;
    fixed[t] = buffer[t] = a[t];
    __syncthreads();
    for (int i = 0; i < 32; ++i) out[t] += fixed[i];
    buffer[t - a[0]] = 0;  // fault: before_the_dynamic
}

extern "C" __global__ void dynamic_past(const int* a, int* out) {
    extern __shared__ int buffer[];
    int t = threadIdx.x;
    buffer[t] = a[t];  // fault: dynamic_past
    __syncthreads();
    out[t] = buffer[blockDim.x - 1 - t];
}

extern "C" __global__ void local_past(const int* a, int* out) {
    int mine[4];
    for (int i = 0; i < 4; i++) mine[i] = a[i];
    out[threadIdx.x] = mine[a[threadIdx.x]];  // fault: local_past
}

extern "C" __global__ void misaligned(const float* a, float* out) {
    int t = threadIdx.x;
    const float4* v = reinterpret_cast<const float4*>(a + t);
    out[t] = v->y;  // misses: the compiler takes four bytes of it
    double d = *reinterpret_cast<const double*>(a + t);  // fault: misaligned
    out[t] += d;
}

extern "C" __global__ void misaligned_shared(const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    tile[t] = a[t];
    __syncthreads();
    out[t] = *reinterpret_cast<short*>(reinterpret_cast<char*>(tile) + a[t]);  // fault: misaligned_shared
}

extern "C" __global__ void unset_global(const float* a, float* out) {
    out[threadIdx.x] = a[threadIdx.x];  // fault: unset_global
}

extern "C" __global__ void unset_shared(int n, const float* a, float* out) {
    __shared__ float tile[64];
    int t = threadIdx.x;
    if (t < n) tile[t] = a[t];
    __syncthreads();
    out[t] = tile[63 - t];  // fault: unset_shared
}

extern "C" __global__ void unset_local(const int* a, int* out) {
    int mine[8];
    int t = threadIdx.x;
    mine[a[t] & 7] = t;
    out[t] = mine[a[t + 1] & 7];  // fault: unset_local
}

extern "C" __global__ void read_after_write(const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    tile[t] = a[t];
    out[t] = tile[63 - t];  // fault: read_after_write
}

extern "C" __global__ void write_after_read(const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    tile[t] = a[t];
    __syncthreads();
    int x = tile[63 - t];
    tile[t] = x + 1;  // fault: write_after_read
    __syncthreads();
    out[t] = tile[t];
}

extern "C" __global__ void write_after_write(const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    tile[t] = a[t];
    tile[63 - t] = a[t] + 1;  // fault: write_after_write
    __syncthreads();
    out[t] = tile[t];
}

// All threads write one place in one instruction, and not the same value.
extern "C" __global__ void who_is_last(int* out) {
    __shared__ int last;
    last = threadIdx.x;  // fault: who_is_last
    __syncthreads();
    out[threadIdx.x] = last;
}

// The loop's second barrier is missing: the next phase overwrites what a slow warp still reads.
extern "C" __global__ void phase_without_barrier(int phases, const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x, sum = 0;
    for (int p = 0; p < phases; p++) {
        tile[t] = a[p * 64 + t];  // fault: phase_without_barrier
        __syncthreads();
        sum += tile[63 - t];
    }
    out[t] = sum;
}

// Right only if the threads of a warp run in step.
extern "C" __global__ void missing_syncwarp(const int* a, int* out) {
    __shared__ volatile int tile[32];
    int t = threadIdx.x;
    tile[t] = a[t];
    int x = tile[31 - t];  // fault: missing_syncwarp
    out[t] = x;
}

// A barrier of the warp does not order the block.
extern "C" __global__ void syncwarp_for_block(const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    tile[t] = a[t];
    __syncwarp();
    out[t] = tile[63 - t];  // fault: syncwarp_for_block
}

extern "C" __global__ void atomic_and_plain(int* out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, 1);
    out[threadIdx.x] = sum;  // fault: atomic_and_plain
}

// The copy is waited for by the thread that made it alone.
extern "C" __global__ void copy_without_barrier(const float* a, float* out) {
    __shared__ float tile[64];
    int t = threadIdx.x;
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(a + t) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[t] = tile[63 - t];  // fault: copy_without_barrier
}

extern "C" __global__ void two_barriers(const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    tile[t] = a[t];
    if (t < 32) {
        __syncthreads();  // fault: two_barriers
        out[t] = tile[t + 32];
    } else {
        __syncthreads();
        out[t] = tile[t - 32];
    }
    __syncthreads();
}

extern "C" __global__ void skipped_barrier(const int* a, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    tile[t] = a[t];
    if (t < 40) __syncthreads();  // fault: skipped_barrier
    tile[t] += 1;
    __syncthreads();
    out[t] = tile[63 - t];
}

extern "C" __global__ void never_full(int* out) {
    asm volatile("bar.sync 1, 96;" ::: "memory");  // fault: never_full
    out[threadIdx.x] = 1;
}
