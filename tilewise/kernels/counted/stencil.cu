// A stencil of five points: a block loads its tile and a halo of one element around it into
// shared memory, and each thread adds its element and the four beside it from there.
// Outside of the matrix all is 0.

#define WIDTH 32
#define HEIGHT 8

// ldi and ldo are elements from one row to the next.
extern "C" __global__ void stencil(
    int rows, int columns, const float* in, int ldi, float* out, int ldo)
{
    __shared__ float tile[HEIGHT + 2][WIDTH + 2];
    int top = blockIdx.y * HEIGHT - 1, left = blockIdx.x * WIDTH - 1;
    for (int y = threadIdx.y; y < HEIGHT + 2; y += HEIGHT) {
        for (int x = threadIdx.x; x < WIDTH + 2; x += WIDTH) {
            int row = top + y, column = left + x;
            bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
            tile[y][x] = inside ? in[(size_t)row * ldi + column] : 0;
        }
    }
    __syncthreads();
    int x = threadIdx.x + 1, y = threadIdx.y + 1;
    if (top + y < rows && left + x < columns) {
        out[(size_t)(top + y) * ldo + left + x] =
            0.5f * tile[y][x] +
            0.125f * (tile[y - 1][x] + tile[y + 1][x] + tile[y][x - 1] + tile[y][x + 1]);
    }
}
