// Module scope: constants and device variables, initialised and not, with pointers among them.

__constant__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__constant__ float scale = 1.5f;
__constant__ char text[] = "tilewise";
__device__ int counter = 40;
__device__ double zeros[6];
__device__ short steps[4] = {-1, 2, -3, 4};
__device__ const float weights[2][3] = {{1, 2, 3}, {4, 5, 6.5f}};
__device__ int* where = &counter;
__device__ const float* row = &weights[1][1];
__device__ const char* words[3] = {"one", "three", "seven"};

struct Entry {
    char key;
    long long value;
    const int* link;
};
__device__ Entry entries[2] = {{'a', -5, &primes[2]}, {'b', 1ll << 40, &primes[5]}};

extern "C" __global__ void constants(int n, const int* index, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = primes[index[i] & 7] + (int)(scale * 2) + text[index[i] & 7];
}

extern "C" __global__ void variables(double* out) {
    int i = threadIdx.x;
    if (i == 0) *where += 2;
    __syncthreads();
    zeros[i] += i;
    out[i] = counter + zeros[i] + steps[i] + weights[i & 1][i % 3] + row[i & 1];
}

extern "C" __global__ void tables(int* out) {
    int i = threadIdx.x;
    const char* word = words[i % 3];
    int length = 0;
    while (word[length]) length++;
    out[i] = length * 1000 + word[length - 1] + *entries[i & 1].link;
    out[i + blockDim.x] = (int)(entries[i & 1].value >> 8) + entries[i & 1].key;
}
