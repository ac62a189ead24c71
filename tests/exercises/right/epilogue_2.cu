typedef unsigned short half_t;

// d += a * b for 16 x 8 elements, 16 deep, by the whole warp (PTX ISA, "mma.m16n8k16").
__device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The accumulator begins with the bias.
__global__ void layer(int m, int n, int k, const half_t* a, const half_t* b, const float* bias, float* d)
{
    int group = threadIdx.x / 4, pair = threadIdx.x % 4, top = blockIdx.y * 16, left = blockIdx.x * 8;
    float sum[4];
    for (int i = 0; i < 2; ++i) sum[i] = sum[i + 2] = bias[left + 2 * pair + i];
    for (int p = k - 16; p >= 0; p -= 16) {
        unsigned of_a[4], of_b[2];
        for (int i = 0; i < 4; ++i)
            of_a[i] = *(const unsigned*)&a[(top + group + i % 2 * 8) * k + p + 2 * pair + i / 2 * 8];
        for (int i = 0; i < 2; ++i) {
            int row = p + 2 * pair + 8 * i;
            of_b[i] = b[row * n + left + group] | b[(row + 1) * n + left + group] << 16;
        }
        mma(sum, of_a, of_b);
    }
    for (int i = 0; i < 4; ++i) sum[i] *= sum[i] > 0;
    ((float2*)d)[((top + group) * n + left) / 2 + pair] = *(float2*)&sum[0];
    ((float2*)d)[((top + group + 8) * n + left) / 2 + pair] = *(float2*)&sum[2];
}
