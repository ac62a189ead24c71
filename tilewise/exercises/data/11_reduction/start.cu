// y[blockIdx.x] = the sum of the block's elements of x, 256 of them, or fewer in the last block.
__global__ void block_sums(int n, const float* x, float* y)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    int i = blockIdx.x * 256 + t;
    s[t] = i < n ? x[i] : 0;
    __syncthreads();
    // TODO: the tree
    if (t == 0) {
        y[blockIdx.x] = s[0];
    }
}
