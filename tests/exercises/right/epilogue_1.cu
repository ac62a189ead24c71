typedef unsigned short half_t;

// d += a * b for 16 x 8 elements, 16 deep, by the whole warp (PTX ISA, "mma.m16n8k16").
__device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ float2 relu(float x, float y, float2 bias)
{
    x += bias.x;
    y += bias.y;
    return make_float2(x > 0 ? x : 0, y > 0 ? y : 0);
}

__global__ void layer(int m, int n, int k, const half_t* a, const half_t* b, const float* bias, float* d)
{
    unsigned g = threadIdx.x >> 2, t = threadIdx.x & 3, row = blockIdx.y * 16 + g, col = blockIdx.x * 8 + 2 * t;
    float sum[4] = {};
    const unsigned* pa = (const unsigned*)(a + row * k) + t;
    for (int p = 0; p < k; p += 16, pa += 8) {
        unsigned of_a[4] = {pa[0], pa[4 * k], pa[4], pa[4 * k + 4]};
        unsigned of_b[2];
        const half_t* pb = b + (p + 2 * t) * n + blockIdx.x * 8 + g;
        of_b[0] = pb[0] | pb[n] << 16;
        of_b[1] = pb[8 * n] | pb[9 * n] << 16;
        mma(sum, of_a, of_b);
    }
    float2 both = *(const float2*)(bias + col);
    *(float2*)(d + row * n + col) = relu(sum[0], sum[1], both);
    *(float2*)(d + (row + 8) * n + col) = relu(sum[2], sum[3], both);
}
