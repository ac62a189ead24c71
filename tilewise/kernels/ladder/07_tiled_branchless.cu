// Idea: no branch at the edge: clamp the index into range, load always, select value or zero.
// Cost: every block clamps and selects, only those at the edge gain; on sm_75 more registers.
// Next: let each thread compute several elements of C, so a shared load feeds several products.

#ifndef real
#define real float
#endif
#ifndef TILE
#define TILE 32
#endif

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void tiled_branchless(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    __shared__ real sa[TILE][TILE];
    __shared__ real sb[TILE][TILE];
    unsigned tx = threadIdx.x, ty = threadIdx.y;
    unsigned row = blockIdx.y * TILE + ty;
    unsigned col = blockIdx.x * TILE + tx;
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread
    if (m == 0 || n == 0) k = 0;  // an empty matrix has no index to clamp to

    real sum = 0;
    for (unsigned p = 0; p < k; p += TILE) {  // unsigned: p + TILE may pass 2^31 - 1
        // Past the edge the tile holds zeros. A thread with no element of C loads all the same.
        // It selects, and does not multiply by the condition: the clamped index points at another
        // row's or column's element, and 0 * NaN is NaN.
        real of_a = a[(size_t)min(row, m - 1u) * lda + min(p + tx, k - 1u)];
        real of_b = b[(size_t)min(p + ty, k - 1u) * ldb + min(col, n - 1u)];
        sa[ty][tx] = (row < m) & (p + tx < k) ? of_a : 0;
        sb[ty][tx] = (p + ty < k) & (col < n) ? of_b : 0;
        __syncthreads();  // both tiles are whole before anybody reads them
        for (int i = 0; i < TILE; ++i) {
            sum += sa[ty][i] * sb[i][tx];
        }
        __syncthreads();  // everybody has read before the next phase overwrites
    }
    if (row < m && col < n) {
        size_t at = (size_t)row * ldc + col;
        c[at] = beta == 0 ? alpha * sum : alpha * sum + beta * c[at];
    }
}
