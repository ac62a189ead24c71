__global__ void product(int m, int n, int k, const unsigned short* a, const unsigned short* b, float* d)
{
    const unsigned lane = threadIdx.x, g = lane >> 2, t = lane & 3;
    const unsigned* upper = (const unsigned*)(a + (blockIdx.y * 16 + g) * k) + t;
    const unsigned* lower = upper + 4 * k;  // eight rows below, in pairs
    const unsigned short* column = b + 2 * t * n + blockIdx.x * 8 + g;
    float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
    for (int steps = k / 16; steps; --steps) {
        unsigned b0 = column[0] + 0x10000u * column[n], b1 = column[8 * n] + 0x10000u * column[9 * n];
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
            : "r"(upper[0]), "r"(lower[0]), "r"(upper[4]), "r"(lower[4]), "r"(b0), "r"(b1));
        upper += 8;
        lower += 8;
        column += 16 * n;
    }
    float2* out = (float2*)(d + (blockIdx.y * 16 + g) * n + blockIdx.x * 8) + t;
    out[0] = make_float2(d0, d1);
    out[4 * n] = make_float2(d2, d3);
}
