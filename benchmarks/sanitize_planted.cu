// Kernels with one planted fault each, which benchmarks/sanitize.py shows to Compute Sanitizer.

extern "C" __global__ void outside(float* x) { x[threadIdx.x] = 1; }

extern "C" __global__ void race(float* x) {
    __shared__ float s[256];
    s[threadIdx.x] = threadIdx.x;
    x[threadIdx.x] = s[255 - threadIdx.x];
}

extern "C" __global__ void unwritten(float* x) { x[128 + threadIdx.x] = x[threadIdx.x]; }

extern "C" __global__ void diverged(float* x) {
    if (threadIdx.x < 100) __syncthreads();
    x[threadIdx.x] = 1;
}

struct alignas(64) TensorMap { char bytes[128]; };

__device__ void wait(unsigned barrier) {
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again; }" ::"r"(barrier) : "memory");
}

template <bool WAITS> __device__ void copy(const TensorMap& map, float* x) {
    __shared__ __align__(1024) float box[256];
    __shared__ __align__(8) unsigned long long barrier;
    unsigned to = __cvta_generic_to_shared(box), at = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(at));
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %2, %2}], [%3];" ::"r"(to), "l"(&map), "r"(0), "r"(at)
                     : "memory");
    }
    __syncthreads();
    if (WAITS) wait(at);
    x[threadIdx.x] = box[threadIdx.x];
    wait(at);
}

extern "C" __global__ void unwaited(const __grid_constant__ TensorMap map, float* x) {
    copy<false>(map, x);
}
extern "C" __global__ void beyond(const __grid_constant__ TensorMap map, float* x) {
    copy<true>(map, x);
}
