__global__ void scan(int n, const float* x, float* y)
{
    __shared__ float of_warps[8];
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    float sum = t < n ? x[blockIdx.x * n + t] : 0;
    for (int d = 1; d < 32; d *= 2) {
        float before = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += before;
    }
    if (lane == 31) of_warps[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; ++w) sum += of_warps[w];
    if (t < n) y[blockIdx.x * n + t] = sum;
}
