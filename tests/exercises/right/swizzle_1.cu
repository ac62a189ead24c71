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

// A rotation does as well as XOR.
__device__ unsigned place(unsigned y, unsigned piece) { return y * 64 + (piece + y) % 8 * 8; }

__global__ void product(int m, int n, const half_t* a, const half_t* b, float* d)
{
    __shared__ __align__(128) half_t tile[1024];
    unsigned lane = threadIdx.x;
    const half_t* own = a + blockIdx.y * 1024;
    for (unsigned y = lane / 8; y < 16; y += 4)
        *(uint4*)(tile + place(y, lane % 8)) = *(const uint4*)(own + y * 64 + lane % 8 * 8);
    __syncthreads();
    const half_t* column = b + lane % 4 * 2 * n + blockIdx.x * 8 + lane / 4;
    float sum[4] = {};
#pragma unroll
    for (unsigned step = 0; step < 4; ++step, column += 16 * n) {
        unsigned of_a[4];
        ldmatrix(of_a, tile + place(lane & 15, 2 * step + (lane >> 4)));
        unsigned of_b[2] = {column[0] | (unsigned)column[n] << 16, column[8 * n] | (unsigned)column[9 * n] << 16};
        mma(sum, of_a, of_b);
    }
    float* out = d + (blockIdx.y * 16 + lane / 4) * n + blockIdx.x * 8 + lane % 4 * 2;
    *(float2*)out = make_float2(sum[0], sum[1]);
    *(float2*)(out + 8 * n) = make_float2(sum[2], sum[3]);
}
