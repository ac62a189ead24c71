// Idea: a block slides a tile of A and one of B along k through shared memory, a phase at a time.
// Cost: global loads fall to 1/TILE; two barriers a phase, and two shared loads a multiply-add.
// Next: tiled_conflicts shows how the same tiles, stored transposed, lose to bank conflicts.

#ifndef real
#define real float
#endif
#ifndef TILE
#define TILE 32
#endif

// C = alpha*A*B + beta*C, row-major: A is m x k, B is k x n, C is m x n.
extern "C" __global__ void tiled(
    int m, int n, int k, real alpha, const real* a, int lda, const real* b, int ldb,
    real beta, real* c, int ldc)
{
    __shared__ real sa[TILE][TILE];
    __shared__ real sb[TILE][TILE];
    unsigned tx = threadIdx.x, ty = threadIdx.y;
    unsigned row = blockIdx.y * TILE + ty;
    unsigned col = blockIdx.x * TILE + tx;
    if (alpha == 0) k = 0;  // as in BLAS: A and B are not read, so a NaN there does not spread

    real sum = 0;
    for (unsigned p = 0; p < k; p += TILE) {  // unsigned: p + TILE may pass 2^31 - 1
        // Past the edge the tile holds zeros. A thread with no element of C loads all the same.
        sa[ty][tx] = row < m && p + tx < k ? a[(size_t)row * lda + p + tx] : 0;
        sb[ty][tx] = p + ty < k && col < n ? b[(size_t)(p + ty) * ldb + col] : 0;
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
