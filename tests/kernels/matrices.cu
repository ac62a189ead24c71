// Matrix instructions: every thread loads and stores what the PTX ISA says that it holds.
// Macro: TYPE ("f16" or "bf16").

#ifndef TYPE
#define TYPE "f16"
#endif

typedef unsigned int u32;

__device__ inline u32 pair(const unsigned short* x, int at, int step) {
    return x[at] | (u32)x[at + step] << 16;
}

__device__ inline u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// A is 16 x 16 and B 16 x 8, both by rows; a warp each (9.7.14.5.8).
extern "C" __global__ void warp_product(const unsigned short* a, const unsigned short* b,
                                        const float* c, float* d) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    a += warp * 256, b += warp * 128, c += warp * 128, d += warp * 128;
    u32 x[4], y[2];
    for (int i = 0; i < 4; ++i) x[i] = pair(a, (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8, 1);
    for (int i = 0; i < 2; ++i) y[i] = pair(b, (2 * t + 8 * i) * 8 + g, 8);
    float z[4];
    for (int i = 0; i < 4; ++i) z[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = z[i];
}

// The first 8 of k only.
extern "C" __global__ void short_product(const unsigned short* a, const unsigned short* b,
                                         const float* c, float* d) {
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    u32 x[2], y = pair(b, 2 * t * 8 + g, 8);
    for (int i = 0; i < 2; ++i) x[i] = pair(a, (g + i * 8) * 16 + 2 * t, 1);
    float z[4];
    for (int i = 0; i < 4; ++i) z[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    asm("mma.sync.aligned.m16n8k8.row.col.f32." TYPE "." TYPE ".f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
        : "r"(x[0]), "r"(x[1]), "r"(y));
    for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = z[i];
}

// The sum in half.
extern "C" __global__ void half_product(const unsigned short* a, const unsigned short* b,
                                        const unsigned short* c, unsigned short* d) {
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    u32 x[4], y[2], z[2];
    for (int i = 0; i < 4; ++i) x[i] = pair(a, (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8, 1);
    for (int i = 0; i < 2; ++i) y[i] = pair(b, (2 * t + 8 * i) * 8 + g, 8);
    for (int i = 0; i < 2; ++i) z[i] = pair(c, (g + i * 8) * 8 + 2 * t, 1);
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
        "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
        : "+r"(z[0]), "+r"(z[1])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int i = 0; i < 2; ++i) *(u32*)(d + (g + i * 8) * 8 + 2 * t) = z[i];
}

// Some lanes never reach the product.
extern "C" __global__ void part_of_a_warp(float* d) {
    if (threadIdx.x >= 20) return;
    u32 x[4] = {}, y[2] = {};
    float z[4] = {};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    d[threadIdx.x] = z[0];
}

// Row l of the matrices is row ``rows[l]`` of 16 bytes of ``x``, which has 64 of them. Each way,
// plain and transposed: what each lane's four registers hold.
extern "C" __global__ void load_matrices(const uint4* x, const int* rows, u32* one, u32* two,
                                         u32* four, u32* turned) {
    __shared__ uint4 image[64];
    int lane = threadIdx.x;
    for (int i = lane; i < 64; i += 32) image[i] = x[i];
    __syncwarp();
    u32 at = shared_address(image + rows[lane]), r[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(one[lane]) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(two[2 * lane]), "=r"(two[2 * lane + 1]) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    for (int i = 0; i < 4; ++i) four[4 * lane + i] = r[i];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    for (int i = 0; i < 4; ++i) turned[4 * lane + i] = r[i];
}

// The way back: registers to rows, and the 64 rows to ``plain`` and ``turned``.
extern "C" __global__ void store_matrices(const u32* x, const int* rows, uint4* plain,
                                          uint4* turned) {
    __shared__ uint4 image[64];
    int lane = threadIdx.x;
    u32 at = shared_address(image + rows[lane]), r[4];
    for (int i = 0; i < 4; ++i) r[i] = x[4 * lane + i];
    for (int i = lane; i < 64; i += 32) image[i] = make_uint4(0, 0, 0, 0);
    __syncwarp();
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(at), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
    __syncwarp();
    for (int i = lane; i < 64; i += 32) plain[i] = image[i];
    __syncwarp();
    for (int i = lane; i < 64; i += 32) image[i] = make_uint4(0, 0, 0, 0);
    __syncwarp();
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(at), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
    __syncwarp();
    for (int i = lane; i < 64; i += 32) turned[i] = image[i];
}

// Products of double, of each warp: ROWS x DEPTH by DEPTH x 8, one after another, a row of each lane.
#ifdef SHAPE
extern "C" __global__ void double_product(const double* a, const double* b, const double* c, double* d) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32;
    a += warp * ROWS * DEPTH, b += warp * DEPTH * 8, c += warp * ROWS * 8, d += warp * ROWS * 8;
    double x[8], y[4], z[4];
    for (int i = 0; i < ROWS * DEPTH / 32; ++i)
        x[i] = a[(g + i % (ROWS / 8) * 8) * DEPTH + t + i / (ROWS / 8) * 4];
    for (int i = 0; i < DEPTH / 4; ++i) y[i] = b[(t + 4 * i) * 8 + g];
    for (int i = 0; i < ROWS / 4; ++i) z[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
#define MMA "mma.sync.aligned." SHAPE ".row.col.f64.f64.f64.f64 "
    if constexpr (ROWS == 8)
        asm(MMA "{%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(z[0]), "+d"(z[1]) : "d"(x[0]), "d"(y[0]));
    else if constexpr (DEPTH == 4)
        asm(MMA "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+d"(z[0]), "+d"(z[1]), "+d"(z[2]), "+d"(z[3]) : "d"(x[0]), "d"(x[1]), "d"(y[0]));
    else if constexpr (DEPTH == 8)
        asm(MMA "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+d"(z[0]), "+d"(z[1]), "+d"(z[2]), "+d"(z[3])
            : "d"(x[0]), "d"(x[1]), "d"(x[2]), "d"(x[3]), "d"(y[0]), "d"(y[1]));
    else
        asm(MMA "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, "
            "{%0, %1, %2, %3};"
            : "+d"(z[0]), "+d"(z[1]), "+d"(z[2]), "+d"(z[3])
            : "d"(x[0]), "d"(x[1]), "d"(x[2]), "d"(x[3]), "d"(x[4]), "d"(x[5]), "d"(x[6]), "d"(x[7]),
              "d"(y[0]), "d"(y[1]), "d"(y[2]), "d"(y[3]));
    for (int i = 0; i < ROWS / 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = z[i];
}
#endif

// A matrix by generic addresses, as it is, and transposed in registers.
extern "C" __global__ void turn_matrix(const unsigned* in, unsigned* out, unsigned* turned) {
    __shared__ __align__(16) unsigned tile[32];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    unsigned x, y;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.b16 {%0}, [%1];"
                 : "=r"(x)
                 : "l"(tile + 4 * (threadIdx.x % 8))
                 : "memory");
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    out[threadIdx.x] = x;
    turned[threadIdx.x] = y;
}
