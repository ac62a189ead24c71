// A histogram: a block counts in shared memory, by atomic additions that meet where values are
// alike, and then adds each of its bins to the one in global memory.
// Dynamic shared memory: bins unsigneds. Every value is below bins.

extern "C" __global__ void histogram(int n, int bins, const unsigned* values, unsigned* counts) {
    extern __shared__ unsigned mine[];
    for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) mine[bin] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&mine[values[i]], 1);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) {
        atomicAdd(&counts[bin], mine[bin]);
    }
}
