// Kernel parameters of every kind: structures by value, narrow integers, nested pointers.

struct View {
    const float* data;
    int shape[2];
    long long strides[2];
    unsigned char flag;
    short bias;
    double scale;
};

extern "C" __global__ void by_value(View view, signed char a, unsigned short b, bool c,
                                    long long d, float* out) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= view.shape[0] || j >= view.shape[1]) return;
    float v = view.data[i * view.strides[0] + j * view.strides[1]];
    v = (float)(v * view.scale) + view.bias;
    if (view.flag) v += a + b;
    if (c) v += (float)d;
    out[i * view.shape[1] + j] = v;
}

struct Table {
    int values[20];
};

// A dynamic index into a parameter.
extern "C" __global__ void indexed(int n, const Table table, const int* index, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = table.values[index[i]];
}

extern "C" __global__ void nothing() {}

extern "C" __global__ void scalars(signed char a, unsigned char b, short c, unsigned short d,
                                   int e, unsigned f, long long g, unsigned long long h, float i,
                                   double j, bool k, double* out) {
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
    out[4] = e;
    out[5] = f;
    out[6] = (double)g;
    out[7] = (double)h;
    out[8] = i;
    out[9] = j;
    out[10] = k;
}
