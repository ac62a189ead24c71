// 128-bit integers.

extern "C" __global__ void wide128(int n, const unsigned long long* a, const unsigned long long* b,
                                   unsigned long long* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned __int128 x = a[i], y = b[i];
    unsigned __int128 product = x * y;
    unsigned __int128 sum = (product << 3) + (x << 64 | y);
    unsigned __int128 difference = product - (y << 64 | x);
    __int128 negative = -(__int128)product >> 5;
    unsigned __int128 quotient = y ? sum / (y + 1) : 0;
    unsigned long long* o = out + (long long)i * 12;
    o[0] = (unsigned long long)product;
    o[1] = (unsigned long long)(product >> 64);
    o[2] = (unsigned long long)sum;
    o[3] = (unsigned long long)(sum >> 64);
    o[4] = (unsigned long long)difference;
    o[5] = (unsigned long long)(difference >> 64);
    o[6] = (unsigned long long)negative;
    o[7] = (unsigned long long)(negative >> 64);
    o[8] = product < sum;
    o[9] = (unsigned long long)quotient;
    o[10] = (unsigned long long)(quotient >> 64);
    o[11] = (unsigned long long)(sum % (y + 1));
}
