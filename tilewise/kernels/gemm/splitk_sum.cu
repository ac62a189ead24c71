// The split-K reduction: D = alpha (the sum of the partial sums) + beta C.
//
// Macros: real, the type of the sums; OUTPUT, that of C and D; LANES, a power of two up to 32: the threads that share the
// parts of a 16-byte piece. Each adds every LANESth part in order, and then their sums are added
// pairwise. OVERLAP as in launch.cuh.
#include "epilogue.cuh"
#include "matrix.cuh"
#include "launch.cuh"

constexpr int THREADS = 256, PIECE = 16 / sizeof(real), AT_ONCE = 8;  // loads in flight

struct __align__(16) Piece { real x[PIECE]; };

struct Sum {
    const real* parts;      // each batch x m x pitch, pitch a multiple of PIECE
    long long part_stride;  // elements
    BatchedMatrix<const OUTPUT> c;
    BatchedMatrix<OUTPUT> d;
    unsigned parts_count, batch, m, n, pitch;
    real alpha, beta;
};

extern "C" __global__ void __launch_bounds__(THREADS) splitk_sum(const __grid_constant__ Sum p FUSED_PARAMETER) {
    begin_launch();
    const unsigned across = p.pitch / PIECE;
    const size_t pieces = (size_t)p.batch * p.m * across, step = (size_t)gridDim.x * THREADS / LANES;
    const unsigned lane = threadIdx.x % LANES;
    // All threads of a warp take part in the shuffles, those past the last piece too.
    for (size_t first = (size_t)blockIdx.x * THREADS / LANES; first < pieces; first += step) {
        const size_t i = first + threadIdx.x / LANES;
        const real* from = p.parts + i * PIECE;
        const unsigned parts = i < pieces ? p.parts_count : 0;
        Piece sum = {};
        for (unsigned part = lane; part < parts; part += AT_ONCE * LANES) {
            Piece found[AT_ONCE];
            #pragma unroll
            for (int j = 0; j < AT_ONCE; ++j)
                if (part + j * LANES < parts)
                    found[j] = *(const Piece*)(from + (part + j * LANES) * p.part_stride);
            #pragma unroll
            for (int j = 0; j < AT_ONCE; ++j) {
                if (part + j * LANES >= parts) continue;
                #pragma unroll
                for (int l = 0; l < PIECE; ++l) sum.x[l] += found[j].x[l];
            }
        }
        #pragma unroll
        for (int other = LANES / 2; other > 0; other /= 2)
            #pragma unroll
            for (int l = 0; l < PIECE; ++l) sum.x[l] += __shfl_xor_sync(~0u, sum.x[l], other);
        if (lane > 0 || i >= pieces) continue;
        const unsigned column = i % across * PIECE;
        const size_t line = i / across;
        const unsigned row = line % p.m, batch = line / p.m;
        const Matrix<const OUTPUT> c = p.c[batch];
        const Matrix<OUTPUT> d = p.d[batch];
        #pragma unroll
        for (int l = 0; l < PIECE; ++l) {
            if (column + l >= p.n) continue;
            real value = epilogue(sum.x[l], p.alpha, p.beta,
                                  [&] { return to_float(*c.at(row, column + l)); });
            value = FUSED(value, batch, row, column + l);
            *d.at(row, column + l) = from_float<OUTPUT>(value);
        }
    }
}
