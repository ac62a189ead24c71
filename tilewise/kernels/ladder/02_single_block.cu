// Idea: each element of C has a thread; one block holds them all, m along x and n along y.
// Cost: a block has at most 1024 threads, so C at most 1024 elements; one multiprocessor works.
// Next: naive spreads C over many blocks.

#ifndef real
#define real float
#endif

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void single_block(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    unsigned row = threadIdx.x;
    unsigned col = threadIdx.y;
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
