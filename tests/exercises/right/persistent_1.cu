typedef unsigned short half_t;

// d += a * b for 16 x 8 elements, 16 deep, by the whole warp (PTX ISA, "mma.m16n8k16").
__device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void product(int m, int n, const half_t* a, const half_t* b, float* d)
{
    // B is turned over on its way in: a pair of k is one word there.
    extern __shared__ half_t columns_of_b[];
    for (int i = threadIdx.x; i < n * 64; i += 128) columns_of_b[i % n * 64 + i / n] = b[i];
    __syncthreads();
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    int tiles = m / 16 * (n / 8);
    // Blocks take turns: warps of one block have tiles of different rows.
    for (int tile = warp * gridDim.x + blockIdx.x; tile < tiles; tile += 4 * gridDim.x) {
        int row = tile % (m / 16) * 16 + g, left = tile / (m / 16) * 8;
        float sum[4] = {};
        const unsigned* pa = (const unsigned*)(a + row * 64) + t;
        const unsigned* pb = (const unsigned*)(columns_of_b + (left + g) * 64) + t;
#pragma unroll
        for (int p = 0; p < 32; p += 8) {
            unsigned of_a[4] = {pa[p], pa[p + 256], pa[p + 4], pa[p + 260]}, of_b[2] = {pb[p], pb[p + 4]};
            mma(sum, of_a, of_b);
        }
        float2* out = (float2*)(d + row * n + left) + t;
        out[0] = make_float2(sum[0], sum[1]);
        out[4 * n] = make_float2(sum[2], sum[3]);
    }
}
