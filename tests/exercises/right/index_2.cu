extern "C" __global__ void scale(int count, float factor, const float* __restrict__ from, float* to)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        to[i] = factor * from[i];
}
