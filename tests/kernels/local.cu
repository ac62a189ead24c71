// Local memory: arrays with an index that the compiler can't know.

extern "C" __global__ void sort_eight(int n, const int* a, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v[8];
    for (int j = 0; j < 8; j++) v[j] = a[i * 8 + j];
    for (int j = 1; j < 8; j++) {
        int x = v[j], p = j;
        while (p > 0 && v[p - 1] > x) {
            v[p] = v[p - 1];
            p--;
        }
        v[p] = x;
    }
    for (int j = 0; j < 8; j++) out[i * 8 + j] = v[j];
}

extern "C" __global__ void histogram(int n, const unsigned char* a, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned short bins[16] = {0};
    for (int j = 0; j < 32; j++) bins[a[i * 32 + j] & 15]++;
    for (int j = 0; j < 16; j++) out[i * 16 + j] = bins[j];
}

extern "C" __global__ void mixed_widths(int n, const int* pick, double* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double wide[5];
    char bytes[24];
    for (int j = 0; j < 5; j++) wide[j] = i + 0.25 * j;
    for (int j = 0; j < 24; j++) bytes[j] = (char)(j * 7 - i);
    out[i] = wide[pick[i] % 5] + bytes[pick[i] % 24];
}
