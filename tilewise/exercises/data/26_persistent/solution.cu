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
    extern __shared__ half_t tile_b[];
    for (int i = threadIdx.x; i < 64 * n; i += blockDim.x) tile_b[i] = b[i];
    __syncthreads();
    int lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4;
    int first = (blockIdx.x * blockDim.x + threadIdx.x) / 32, step = gridDim.x * blockDim.x / 32;
    int columns = n / 8, tiles = m / 16 * columns;
    for (int tile = first; tile < tiles; tile += step) {
        int top = tile / columns * 16, left = tile % columns * 8;
        float sum[4] = {};
        for (int p = 0; p < 64; p += 16) {
            unsigned of_a[4], of_b[2];
            for (int i = 0; i < 4; ++i) {
                int row = top + group + i % 2 * 8, col = p + 2 * pair + i / 2 * 8;
                of_a[i] = *(const unsigned*)(a + row * 64 + col);
            }
            for (int i = 0; i < 2; ++i) {
                const half_t* at = tile_b + (p + 2 * pair + 8 * i) * n + left + group;
                of_b[i] = at[0] | at[n] << 16;
            }
            mma(sum, of_a, of_b);
        }
        for (int i = 0; i < 4; ++i) {
            d[(top + group + i / 2 * 8) * n + left + 2 * pair + i % 2] = sum[i];
        }
    }
}
