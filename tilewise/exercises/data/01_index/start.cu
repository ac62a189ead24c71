// y[i] = a * x[i] for every i from 0 to n - 1. Complete the two lines.
__global__ void scale(int n, float a, const float* x, float* y)
{
    int i = 0;     // TODO: which element is this thread's?
    if (i < n) {   // the last block has threads to spare
        y[i] = 0;  // TODO
    }
}
