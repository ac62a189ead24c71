__global__ void count_positive(int n, const float* x, int* count)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    bool is_positive = i < n ? x[i] > 0 : false;
    unsigned votes = __ballot_sync(0xffffffff, is_positive);
    if (threadIdx.x % 32 == 0 && votes) atomicAdd(count, __popc(votes));
}
