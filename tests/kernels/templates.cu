// Templates: kernels by name expression, with types, integers and functors.

struct Plus {
    template <typename T>
    __device__ T operator()(T a, T b) const { return a + b; }
    template <typename T>
    __device__ T zero() const { return 0; }
};
struct Times {
    template <typename T>
    __device__ T operator()(T a, T b) const { return a * b; }
    template <typename T>
    __device__ T zero() const { return 1; }
};

template <typename T, int WIDTH, typename Op>
__global__ void fold(int rows, const T* a, T* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    Op op;
    T v = op.template zero<T>();
#pragma unroll
    for (int j = 0; j < WIDTH; j++) v = op(v, a[i * WIDTH + j]);
    out[i] = v;
}

namespace inner {
template <bool UP>
__global__ void step(int* x) {
    if constexpr (UP) x[threadIdx.x]++;
    else x[threadIdx.x]--;
}
}  // namespace inner

#ifdef BIAS
extern "C" __global__ void with_macro(int* x) { x[threadIdx.x] += BIAS; }
#endif
