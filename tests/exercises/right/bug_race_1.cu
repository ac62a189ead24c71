__global__ void smooth(int n, const float* x, float* y)
{
    __shared__ float first[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    first[t] = x[i];
    __syncthreads();
    y[i] = first[t] + first[127 - t];
}
