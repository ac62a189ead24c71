// Sums of a part of k, on their way from one kernel to the next.

// Where a consumer thread's partial sums of rows 64 i and columns 8 j are: four floats, neighbours
// of the next thread's.
__device__ inline float4* partial(float* workspace, int slot, int i, int j, int thread) {
    return (float4*)(workspace + (long long)slot * TILE_FLOATS) +
           (i * (BLOCK_N / 8) + j) * (128 * CONSUMERS) + thread;
}

__device__ inline void store_partial(Sums& sum, float* workspace, int slot,
                                     int thread) {
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int j = 0; j < BLOCK_N / 8; ++j) {
            *partial(workspace, slot, i, j, thread) = make_float4(
                sum[i][4 * j], sum[i][4 * j + 1], sum[i][4 * j + 2], sum[i][4 * j + 3]);
        }
    }
}
