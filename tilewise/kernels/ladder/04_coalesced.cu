// Idea: columns run along x, so a warp reads 32 neighbours of a row of B: 4 sectors, not 32.
// Cost: each element of A is still loaded n times and each of B m times: 2*m*n*k loads.
// Next: tiled loads a tile of each into shared memory once and uses it TILE times.

#ifndef real
#define real float
#endif
#ifndef TILE
#define TILE 32
#endif

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void coalesced(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    unsigned row = blockIdx.y * TILE + threadIdx.y;
    unsigned col = blockIdx.x * TILE + threadIdx.x;
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    if (row < m && col < n) {
        real sum = 0;
        for (int p = 0; p < k; ++p) {
            sum += a[(size_t)row * lda + p] * b[(size_t)p * ldb + col];
        }
        size_t at = (size_t)row * ldc + col;
        c[at] = beta == 0 ? alpha * sum : alpha * sum + beta * c[at];
    }
}
