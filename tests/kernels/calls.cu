// Functions that stay functions: calls, recursion, pointers, structures in and out.

struct Pair {
    int first;
    double second;
};

struct Shape {
    float width, height;
    char tag;
    __device__ Shape(float w, float h, char t) : width(w), height(h), tag(t) {}
    __device__ virtual float area() const { return width * height; }
};

struct Triangle : Shape {
    __device__ Triangle(float w, float h) : Shape(w, h, 't') {}
    __device__ float area() const override { return width * height * 0.5f; }
};

__device__ __noinline__ int square(int x) { return x * x; }
__device__ __noinline__ int cube(int x) { return x * x * x; }
__device__ __noinline__ int negate(int x) { return -x; }

__device__ __noinline__ Pair make_pair(int a, double b) {
    Pair p;
    p.first = a + 1;
    p.second = b * 2;
    return p;
}

__device__ __noinline__ double use_pair(Pair p, char c, short s, long long l) {
    return p.first + p.second + c + s + l;
}

__device__ __noinline__ void into(float* where, float value, bool twice) {
    *where += twice ? 2 * value : value;
}

__device__ __noinline__ int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__device__ int is_odd(int n);
__device__ __noinline__ int is_even(int n) { return n == 0 ? 1 : is_odd(n - 1); }
__device__ __noinline__ int is_odd(int n) { return n == 0 ? 0 : is_even(n - 1); }

typedef int (*Unary)(int);
__device__ Unary table[3] = {square, cube, negate};

extern "C" __global__ void plain_calls(int n, const int* a, int* out, double* wide, float* sums) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int r = square(a[i]);
    if (a[i] & 1) r += cube(a[i]);
    out[i] = r;
    Pair p = make_pair(a[i], 0.5 * i);
    wide[i] = use_pair(p, (char)(i - 20), (short)(i * 3), 1ll << 40);
    float local = i;
    into(&local, 2.5f, i % 2);
    into(&sums[i], local, false);
}

extern "C" __global__ void recursion(int n, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = fibonacci(i % 9) * 2 + is_even(i % 13);
}

extern "C" __global__ void pointers(int n, const int* a, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Unary f = table[i % 3];
    out[i] = f(a[i]);
}

extern "C" __global__ void virtual_calls(int n, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Shape rectangle(i, 3.0f, 'r');
    Triangle triangle(i, 3.0f);
    const Shape* shape = i % 2 ? &rectangle : static_cast<const Shape*>(&triangle);
    out[i] = shape->area() + shape->tag;
}
