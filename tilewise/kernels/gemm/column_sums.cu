// D = the sum of each column of a row-major matrix, in float: the gradient of a bias, for one.
//
// A cluster of blocks has a strip of COLUMNS columns, and each of its threads a piece of WIDTH of them in every
// (CLUSTER * LINES)th row. The threads' sums are added up in shared memory, and then those of the blocks in the
// first block's. Always in the same order, so that the bits are the same in every run.
//
// Macros: INPUT and OUTPUT, the types of the elements and of D's (convert.cuh); WIDTH, the elements that a thread
// loads at once: 16 bytes of them, or 1 where rows are not 16-byte aligned; CLUSTER, the blocks of a cluster.
// OVERLAP as in launch.cuh.
#include "../ptx/cluster.cuh"
#include "../ptx/convert.cuh"
#include "../ptx/shared.cuh"
#include "launch.cuh"

constexpr int THREADS = 256, LANES = WIDTH == 1 ? 32 : 8, LINES = THREADS / LANES;
constexpr int COLUMNS = LANES * WIDTH;
constexpr int AT_ONCE = 8;  // loads in flight
static_assert(COLUMNS <= THREADS && COLUMNS % 4 == 0);

struct __align__(WIDTH * sizeof(INPUT)) Piece { INPUT x[WIDTH]; };

struct ColumnSums {
    const INPUT* source;
    OUTPUT* d;
    long long pitch;  // elements from one row to the next
    unsigned m, n;    // n is a multiple of WIDTH
};

extern "C" __global__ void __launch_bounds__(THREADS) __cluster_dims__(CLUSTER, 1, 1)
column_sums(const __grid_constant__ ColumnSums p) {
    __shared__ float of_line[LINES][COLUMNS];
    __shared__ __align__(16) float of_block[CLUSTER][COLUMNS];
    const unsigned rank = blockIdx.x % CLUSTER, strip = blockIdx.x / CLUSTER;
    const unsigned lane = threadIdx.x % LANES, line = threadIdx.x / LANES;
    const unsigned column = strip * COLUMNS + lane * WIDTH, step = CLUSTER * LINES;
    begin_launch();
    float sum[WIDTH] = {};
    if (column < p.n) {
        const INPUT* from = p.source + column;
        for (unsigned first = rank * LINES + line; first < p.m; first += AT_ONCE * step) {
            Piece found[AT_ONCE] = {};
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i)
                if (first + i * step < p.m) found[i] = *(const Piece*)(from + (first + i * step) * p.pitch);
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) sum[j] += to_float(found[i].x[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) of_line[line][lane * WIDTH + j] = sum[j];
    __syncthreads();
    if (threadIdx.x < COLUMNS) {
        float total = 0;
#pragma unroll
        for (int i = 0; i < LINES; ++i) total += of_line[i][threadIdx.x];
        of_block[rank][threadIdx.x] = total;
    }
#if CLUSTER > 1
    cluster_sync();  // the first block has begun
    if (rank > 0 && threadIdx.x < COLUMNS / 4)
        st_shared_cluster(map_shared(shared_address(&of_block[rank][4 * threadIdx.x]), 0),
                          &of_block[rank][4 * threadIdx.x]);
    cluster_sync();
#endif
    const unsigned own = strip * COLUMNS + threadIdx.x;
    if (rank > 0 || threadIdx.x >= COLUMNS || own >= p.n) return;
    float total = 0;
#pragma unroll
    for (int i = 0; i < CLUSTER; ++i) total += of_block[i][threadIdx.x];
    p.d[own] = from_float<OUTPUT>(total);
}
