// Idea: one thread computes all of C, element after element, as a loop on a CPU does.
// Cost: one lane of the whole GPU works, and it waits for 2*m*n*k loads from global memory.
// Next: single_block gives each element of C a thread of its own.

#ifndef real
#define real float
#endif

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void single_thread(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    for (int row = 0; row < m; ++row) {
        for (int col = 0; col < n; ++col) {
            real sum = 0;
            for (int p = 0; p < k; ++p) {
                sum += a[(size_t)row * lda + p] * b[(size_t)p * ldb + col];
            }
            size_t at = (size_t)row * ldc + col;
            c[at] = beta == 0 ? alpha * sum : alpha * sum + beta * c[at];
        }
    }
}
