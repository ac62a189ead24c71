// The functions of CUDA's device runtime that wait for the whole grid, which Numba's code calls.
//
// In a cooperative launch the driver gives the grid a workspace and its address in %envreg1 and
// %envreg2: the first word is its size, the second the grid's barrier. Block 0 adds what makes the
// top bit flip once every other block has added 1.

extern "C" __device__ unsigned long long cudaCGGetIntrinsicHandle(cudaCGScope scope)
{
    unsigned high, low;
    asm("mov.u32 %0, %%envreg1;" : "=r"(high));
    asm("mov.u32 %0, %%envreg2;" : "=r"(low));
    return scope == cudaCGScopeGrid ? (unsigned long long)high << 32 | low : 0;
}

extern "C" __device__ cudaError_t cudaCGSynchronize(unsigned long long handle, unsigned flags)
{
    if (handle == 0) return cudaErrorInvalidValue;
    unsigned* arrived = (unsigned*)handle + 1;
    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        unsigned old, now, add = 1, blocks = gridDim.x * gridDim.y * gridDim.z;
        if (blockIdx.x + blockIdx.y + blockIdx.z == 0) add = 0x80000000u - (blocks - 1);
        asm volatile("atom.add.release.gpu.u32 %0, [%1], %2;"
                     : "=r"(old) : "l"(arrived), "r"(add) : "memory");
        do asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
        while ((int)(old ^ now) >= 0);
    }
    __syncthreads();
    return cudaSuccess;
}
