// D = round(sums + beta D): the float32 sums of a product whose k was divided, complete, are rounded to
// D's type. A thread for each element, neighbours in a line.
//
// Macro: OUTPUT, the type of D's elements (convert.cuh).
#include "../ptx/convert.cuh"

constexpr int THREADS = 256;

struct Rounding {
    const float* sums;
    OUTPUT* d;
    long long sums_pitch, d_pitch;  // elements from one line to the next
    long long lines, width;         // of both
    float beta;                     // with 0, D is not read
};

extern "C" __global__ void __launch_bounds__(THREADS) round_sums(const __grid_constant__ Rounding p) {
    const long long column = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (column >= p.width) return;
    for (long long line = blockIdx.y; line < p.lines; line += gridDim.y) {
        float sum = p.sums[line * p.sums_pitch + column];
        OUTPUT& d = p.d[line * p.d_pitch + column];
        if (p.beta != 0) sum += p.beta * to_float(d);
        d = from_float<OUTPUT>(sum);
    }
}
