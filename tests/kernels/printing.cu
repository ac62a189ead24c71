// printf and assert.

extern "C" __global__ void formats(int i, unsigned u, long long l, double d, float f) {
    printf("plain\n");
    printf("%d %i %u %x %X %o %c|%5d|%-5d|%05d|%+d|% d\n", i, i, u, u, u, u, 'A' + 2, i, i, i, i, i);
    printf("%lld %llu %llx %ld %hd\n", l, (unsigned long long)l, l, (long)l, i);
    printf("%f %.3f %10.2f %-10.1f| %e %.2E %g %G\n", d, d, d, d, d, d, d, (double)f);
    printf("%s and %10s and %-6s and %.2s%%\n", "one", "two", "three", "four");
    printf("%*d\n", 6, i);
    printf("%p\n", (void*)0);
}

extern "C" __global__ void each_thread(const int* a) {
    if (a[threadIdx.x] > 0) printf("thread %d of block %d: %d\n", threadIdx.x, blockIdx.x, a[threadIdx.x]);
}

extern "C" __global__ void returned(int* out) { out[0] = printf("%d %d\n", 1, 2); }

extern "C" __global__ void asserting(int n, const int* a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) assert(a[i] >= 0 && "values are not negative");
}

extern "C" __global__ void trapping(int n, const int* a) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && a[i] < 0) __trap();
}
