// Partial sums of the stream-K tail, on their way from hopper.cu to hopper_sum.cu.

// Where a consumer thread's four partial sums of row block i (64 rows) and column block j (8 columns)
// lie. Those of neighbouring threads are neighbours.
__device__ inline float4* partial(float* workspace, int slot, int i, int j, int thread) {
    return (float4*)(workspace + (long long)slot * TILE_FLOATS) +
           (i * (BLOCK_N / 8) + j) * (128 * SHARERS) + thread;
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
