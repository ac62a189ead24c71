// The second kernel where fma.cu's blocks divide k: D = alpha (the sum of the parts) + beta C, the
// parts added in their order.
//
// Macros: real, the elements' type; OVERLAP as in launch.cuh.
#include "elements.cuh"
#include "launch.cuh"

constexpr int THREADS = 256, PIECE = 16 / sizeof(real), AT_ONCE = 8;  // loads in flight

struct __align__(16) Piece { real x[PIECE]; };

struct Sum {
    const real* parts;      // each batch x m x pitch, pitch a multiple of PIECE
    long long part_stride;  // elements
    Batch<const real> c;
    Batch<real> d;
    unsigned parts_count, batch, m, n, pitch;
    real alpha, beta;
};

extern "C" __global__ void __launch_bounds__(THREADS) fma_sum(const __grid_constant__ Sum p) {
    begin_launch();
    const unsigned across = p.pitch / PIECE;
    const size_t pieces = (size_t)p.batch * p.m * across, step = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < pieces; i += step) {
        const real* from = p.parts + i * PIECE;
        Piece sum = {};
        for (unsigned part = 0; part < p.parts_count; part += AT_ONCE) {
            Piece found[AT_ONCE];
            #pragma unroll
            for (int j = 0; j < AT_ONCE; ++j)
                if (part + j < p.parts_count)
                    found[j] = *(const Piece*)(from + (part + j) * p.part_stride);
            #pragma unroll
            for (int j = 0; j < AT_ONCE; ++j) {
                if (part + j >= p.parts_count) continue;
                #pragma unroll
                for (int l = 0; l < PIECE; ++l) sum.x[l] += found[j].x[l];
            }
        }
        const unsigned column = i % across * PIECE;
        const size_t line = i / across;
        const unsigned row = line % p.m, batch = line / p.m;
        const Elements<const real> c = p.c[batch];
        const Elements<real> d = p.d[batch];
        #pragma unroll
        for (int l = 0; l < PIECE; ++l) {
            if (column + l >= p.n) continue;
            real value = p.alpha * sum.x[l];
            if (p.beta != 0) value += p.beta * *c.at(row, column + l);
            *d.at(row, column + l) = value;
        }
    }
}
