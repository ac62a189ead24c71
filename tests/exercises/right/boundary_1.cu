__global__ void scale_matrix(int rows, int columns, float a, float* x, int ld)
{
    unsigned i = threadIdx.y + blockDim.y * blockIdx.y;
    unsigned j = threadIdx.x + blockDim.x * blockIdx.x;
    if (i >= rows || j >= columns) return;
    float* row = x + (size_t)ld * i;
    row[j] = row[j] * a;
}
