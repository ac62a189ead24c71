// Where a thread stands: grids and blocks of one to three dimensions, and the special registers.

extern "C" __global__ void positions(int* out) {
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int* row = out + (block * (int)(blockDim.x * blockDim.y * blockDim.z) + thread) * 6;
    row[0] = blockIdx.x;
    row[1] = blockIdx.y;
    row[2] = blockIdx.z;
    row[3] = threadIdx.x;
    row[4] = threadIdx.y;
    row[5] = threadIdx.z;
}

extern "C" __global__ void extents(unsigned* out) {
    if (blockIdx.x || blockIdx.y || blockIdx.z || threadIdx.x || threadIdx.y || threadIdx.z) return;
    out[0] = gridDim.x;
    out[1] = gridDim.y;
    out[2] = gridDim.z;
    out[3] = blockDim.x;
    out[4] = blockDim.y;
    out[5] = blockDim.z;
    out[6] = warpSize;
}

extern "C" __global__ void lanes(unsigned* out) {
    unsigned lane, eq, lt, le, gt, ge;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_eq;" : "=r"(eq));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lt));
    asm("mov.u32 %0, %%lanemask_le;" : "=r"(le));
    asm("mov.u32 %0, %%lanemask_gt;" : "=r"(gt));
    asm("mov.u32 %0, %%lanemask_ge;" : "=r"(ge));
    unsigned* row = out + (threadIdx.x + blockDim.x * threadIdx.y) * 6;
    row[0] = lane;
    row[1] = eq;
    row[2] = lt;
    row[3] = le;
    row[4] = gt;
    row[5] = ge;
}

extern "C" __global__ void clocks(long long* out) {
    long long before = clock64();
    unsigned short_before = clock();
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    __syncthreads();
    unsigned smid;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
    long long after = clock64();
    unsigned short_after = clock();
    out[threadIdx.x * 4 + 0] = after - before;
    out[threadIdx.x * 4 + 1] = (long long)(short_after - short_before);
    out[threadIdx.x * 4 + 2] = nanoseconds > 0;
    out[threadIdx.x * 4 + 3] = smid < 1024;
}

extern "C" __global__ void grid_stride(int n, float a, const float* x, float* y) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = a * x[i] + y[i];
}
