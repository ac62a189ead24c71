// Multiplies the m x n matrix x by a, in place. Rows are ld elements apart; ld may be more than n.
__global__ void scale_matrix(int m, int n, float a, float* x, int ld)
{
    int col = blockIdx.x * 16 + threadIdx.x;
    int row = 0;  // TODO
    if (col < n) {  // TODO: and what else?
        x[col] *= a;  // TODO: where is element (row, col)?
    }
}
