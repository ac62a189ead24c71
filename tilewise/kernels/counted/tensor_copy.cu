// Tensor copies (TMA): each block brings the box of `from` that begins at its column and its row to
// shared memory, and stores it in the same box of `to`, or adds it there (ADDS).

typedef unsigned long long u64;

struct alignas(64) TensorMap { char bytes[128]; };

// `size` is that of a box in bytes, which is dynamic shared memory too. A block is a warp.
extern "C" __global__ void tensor_copy(
    const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to, int size,
    int columns, int rows)
{
    extern __shared__ __align__(1024) char box[];
    __shared__ u64 barrier;
    if (threadIdx.x > 0) return;
    unsigned at = (unsigned)__cvta_generic_to_shared(box);
    unsigned told = (unsigned)__cvta_generic_to_shared(&barrier);
    int x = blockIdx.x * columns, y = blockIdx.y * rows;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(told) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(told), "r"(size) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(at), "l"(&from), "r"(x), "r"(y), "r"(told) : "memory");
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again; }" ::"r"(told) : "memory");
#if ADDS
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group"
                 " [%0, {%1, %2}], [%3];" ::"l"(&to), "r"(x), "r"(y), "r"(at) : "memory");
#else
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
                 " [%0, {%1, %2}], [%3];" ::"l"(&to), "r"(x), "r"(y), "r"(at) : "memory");
#endif
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}
