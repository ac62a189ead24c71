typedef unsigned short half_t;

// d += a * b for 16 x 8 elements, 16 deep, by the whole warp (PTX ISA, "mma.m16n8k16").
__device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 pieces of a matrix in shared memory: lane l names row l % 8 of piece l / 8 (PTX ISA, "ldmatrix").
__device__ void ldmatrix(unsigned (&a)[4], const half_t* row)
{
    unsigned at = __cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at) : "memory");
}

// Where in the tile element x of row y is: 64 elements a row, in pieces of eight.
__device__ int place(int y, int x)
{
    return y * 64 + x;  // TODO: swizzle the pieces
}

// D = A*B: A is m x 64, B is 64 x n, in float16; D is m x n, in float32. A warp has 16 x 8 elements of D.
__global__ void product(int m, int n, const half_t* a, const half_t* b, float* d)
{
    __shared__ __align__(128) half_t tile[16 * 64];
    int lane = threadIdx.x, group = lane / 4, pair = lane % 4;
    int top = blockIdx.y * 16, left = blockIdx.x * 8;
    for (int i = lane; i < 16 * 8; i += 32) {  // a piece of 16 bytes
        int y = i / 8, x = i % 8 * 8;
        *(uint4*)&tile[place(y, x)] = *(const uint4*)&a[(top + y) * 64 + x];
    }
    __syncwarp();
    float sum[4] = {};
    for (int p = 0; p < 64; p += 16) {
        unsigned of_a[4], of_b[2];
        ldmatrix(of_a, &tile[place(lane % 16, p + lane / 16 * 8)]);
        for (int i = 0; i < 2; ++i) {
            const half_t* at = b + (p + 2 * pair + 8 * i) * n + left + group;
            of_b[i] = at[0] | at[n] << 16;
        }
        mma(sum, of_a, of_b);
    }
    for (int i = 0; i < 4; ++i) {
        d[(top + group + i / 2 * 8) * n + left + 2 * pair + i % 2] = sum[i];
    }
}
