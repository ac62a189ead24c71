typedef unsigned short half_t;

// d += a * b for 16 x 8 elements, 16 deep, by the whole warp (PTX ISA, "mma.m16n8k16").
__device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void product(int m, int n, int k, const half_t* a, const half_t* b, float* d)
{
    int group = threadIdx.x / 4, pair = threadIdx.x % 4;
    float sum[4] = {0, 0, 0, 0};
    a += blockIdx.y * 16 * k;
    b += blockIdx.x * 8;
    for (int p = k - 16; p >= 0; p -= 16) {  // from the end; the columns of A and rows of B in another order
        unsigned of_a[4], of_b[2];
        // The instruction's k is 0 to 15; any order will do if A and B have the same: pairs 4 apart are swapped.
        for (int i = 0; i < 4; ++i)
            of_a[i] = *(const unsigned*)&a[(group + i % 2 * 8) * k + p + 2 * pair + (i < 2 ? 8 : 0)];
        for (int i = 0; i < 2; ++i) {
            int row = p + 2 * pair + (i == 0 ? 8 : 0);
            of_b[i] = (unsigned)b[row * n + group] | (unsigned)b[(row + 1) * n + group] << 16;
        }
        mma(sum, of_a, of_b);
    }
    float* out = d + (blockIdx.y * 16 + group) * n + blockIdx.x * 8 + 2 * pair;
    out[0] = sum[0];
    out[1] = sum[1];
    out += 8 * n;
    out[0] = sum[2];
    out[1] = sum[3];
}
