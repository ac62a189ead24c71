// Control flow: switches, loops, divergence, early returns.

extern "C" __global__ void switching(int n, const int* a, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i], r = 1;
    switch (x) {
        case 0: r = x * 3 + i; break;
        case 1: r = i - 7; break;
        case 2: r = i ^ 0x55;  // falls through
        case 3: r += 11; break;
        case 4: for (int j = 0; j < i % 5; j++) r = r * 3 + j; break;
        case 5: r = i / 3; break;
        case 6: r = -i; break;
        case 7: r = i << 2; break;
        case 8: return;
        case 9: r = i * i; break;
        case 1000: r = 1234; break;
        default: r = -1;
    }
    out[i] = r;
}

extern "C" __global__ void collatz(int n, int limit, const int* a, int* steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = a[i];
    int count = 0;
    while (x != 1) {
        if (x & 1) x = 3 * x + 1;
        else x >>= 1;
        if (++count >= limit) break;
    }
    steps[i] = count;
}

extern "C" __global__ void nested(int n, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = 0;
    for (int x = 0; x < i % 9; x++) {
        if (x == 3) continue;
        for (int y = x;; y++) {
            if (y > i % 7) break;
            if ((x + y) % 2) continue;
            sum += x * 10 + y;
            if (sum > 200) goto done;
        }
    }
    sum += 1000;
done:
    if (i < n) out[i] = sum;
}

// Threads past the data leave before the barrier, which then waits for the others only.
extern "C" __global__ void early_return(int n, const int* a, int* out) {
    __shared__ int tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    tile[threadIdx.x] = a[i];
    __syncthreads();
    int other = i ^ 1;
    out[i] = other < n ? tile[threadIdx.x ^ 1] : -1;
}

extern "C" __global__ void do_while(int n, unsigned* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned state = i + 1, rounds = 0;
    do {
        state = state * 1664525u + 1013904223u;
        rounds++;
    } while ((state >> 28) != 7 && rounds < 40);
    out[i] = state ^ rounds;
}

// A barrier in a loop whose length the whole block shares, with divergence between.
extern "C" __global__ void barrier_loop(int rounds, int* out) {
    __shared__ int line[128];
    int t = threadIdx.x;
    line[t] = t;
    for (int r = 0; r < rounds; r++) {
        __syncthreads();
        int v = line[(t + 1) % blockDim.x];
        if (t & 1) v += r;
        __syncthreads();
        line[t] = v;
    }
    out[blockIdx.x * blockDim.x + t] = line[t];
}

extern "C" __global__ void ternaries(int n, const int* a, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i];
    bool p = x > 3, q = x < 20, r = x % 3 == 0;
    out[i] = (p && q) * 1 + (p || r) * 2 + (p ^ q) * 4 + (!r && (q || !p)) * 8;
}
