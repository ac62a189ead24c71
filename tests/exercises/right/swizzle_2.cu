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

// The bytes' offset with bits 4 to 6 turned over by bits 7 to 9, as TMA's 128-byte swizzle has it.
__device__ half_t* at(half_t* tile, int y, int x)
{
    unsigned bytes = y * 128 + x * 2;
    return tile + (bytes ^ (bytes >> 3 & 0x70)) / 2;
}

__global__ void product(int m, int n, const half_t* a, const half_t* b, float* d)
{
    __shared__ __align__(1024) half_t tile[16 * 64];
    int lane = threadIdx.x, row = blockIdx.y * 16, col = blockIdx.x * 8;
    for (int i = 96 + lane; i >= 0; i -= 32)
        *(uint4*)at(tile, i / 8, i % 8 * 8) = *(const uint4*)&a[(row + i / 8) * 64 + i % 8 * 8];
    __syncwarp();
    float sum[4] = {};
    for (int p = 48; p >= 0; p -= 16) {
        unsigned of_a[4], of_b[2];
        ldmatrix(of_a, at(tile, lane % 16, p + (lane < 16 ? 0 : 8)));
        for (int i = 0; i < 2; ++i) {
            int k = p + lane % 4 * 2 + 8 * i;
            of_b[i] = b[k * n + col + lane / 4] | b[k * n + n + col + lane / 4] << 16;
        }
        mma(sum, of_a, of_b);
    }
    for (int i = 3; i >= 0; --i) d[(row + lane / 4 + i / 2 * 8) * n + col + lane % 4 * 2 + i % 2] = sum[i];
}
