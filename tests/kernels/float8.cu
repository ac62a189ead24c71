// Conversions between floats of eight bits and wider ones, in pairs: macros TYPE and RELU.
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

extern "C" __global__ void from_float(int n, const float* x, unsigned short* out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        asm("cvt.rn.satfinite" TEXT(RELU) "." TEXT(TYPE) ".f32 %0, %1, %2;"
            : "=h"(out[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
    }
}

extern "C" __global__ void from_halves(int n, const unsigned* x, unsigned short* out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        asm("cvt.rn.satfinite" TEXT(RELU) "." TEXT(TYPE) ".f16x2 %0, %1;"
            : "=h"(out[i]) : "r"(x[i]));
    }
}

extern "C" __global__ void to_halves(int n, const unsigned short* x, unsigned* out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        asm("cvt.rn" TEXT(RELU) ".f16x2." TEXT(TYPE) " %0, %1;" : "=r"(out[i]) : "h"(x[i]));
    }
}
