__global__ void histogram(int n, const int* x, int* counts)
{
    __shared__ int own[64];
    for (int bin = threadIdx.x; bin < 64; bin += blockDim.x) own[bin] = 0;
    __syncthreads();
    int i = threadIdx.x + blockIdx.x * 128;
    while (i < n) {
        atomicAdd(own + x[i], 1);
        i += 512;
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < 64; bin += blockDim.x)
        if (own[bin]) atomicAdd(counts + bin, own[bin]);
}
