// Idea: C is cut into blocks of TILE x TILE threads, so it may have any size. Rows run along x.
// Cost: the 32 threads of a warp stand in 32 rows: each load of A and store of C is 32 sectors.
// Next: coalesced lets columns run along x, so that a warp's accesses lie side by side.

#ifndef real
#define real float
#endif
#ifndef TILE
#define TILE 32
#endif

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void naive(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    unsigned row = blockIdx.x * TILE + threadIdx.x;
    unsigned col = blockIdx.y * TILE + threadIdx.y;
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
