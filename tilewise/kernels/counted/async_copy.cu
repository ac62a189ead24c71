// Each thread copies WIDTH bytes from global to shared memory by cp.async, from the place and to
// the place that it is given, or stands aside where the latter is negative: any pattern of banks
// and of sectors, one a warp. CACHE is ca (through the L1 cache) or cg (past it, 16 bytes only).
// PARTIAL: of the item, only as many bytes are read as `bytes` says, and zeros stand for the rest.

#define LANES 32
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

struct __align__(WIDTH) item { unsigned words[WIDTH / 4]; };

// `to` and `from` count in items. A block is a warp.
extern "C" __global__ void async_copy(
    int items, const int* to, const int* from, const int* bytes, const item* in, unsigned* out)
{
    extern __shared__ item places[];
    unsigned* words = (unsigned*)places;
    unsigned lane = threadIdx.x, mine = blockIdx.x * LANES + lane, count = items * (WIDTH / 4);
    for (unsigned i = lane; i < count; i += LANES) words[i] = 0;
    __syncthreads();
    if (to[mine] >= 0) {
        unsigned address = (unsigned)__cvta_generic_to_shared(places + to[mine]);
#if PARTIAL
        asm volatile("cp.async." TEXT(CACHE) ".shared.global [%0], [%1], " TEXT(WIDTH) ", %2;"
                     ::"r"(address), "l"(in + from[mine]), "r"(bytes[mine]) : "memory");
#else
        asm volatile("cp.async." TEXT(CACHE) ".shared.global [%0], [%1], " TEXT(WIDTH) ";"
                     ::"r"(address), "l"(in + from[mine]) : "memory");
#endif
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (unsigned i = lane; i < count; i += LANES) out[blockIdx.x * count + i] = words[i];
}
