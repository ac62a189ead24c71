// Each thread loads WIDTH bytes of shared memory at the place that it is given, or stores them
// there, or stands aside where the place is negative: any pattern of banks, one a warp.

#if WIDTH == 4
using item = unsigned;
#define SUM(x) (x)
#define MAKE(v) (v)
#elif WIDTH == 8
struct __align__(8) item { unsigned x, y; };
#define SUM(v) ((v).x + (v).y)
#define MAKE(v) item{(v), (v)}
#else
struct __align__(16) item { unsigned x, y, z, w; };
#define SUM(v) ((v).x + (v).y + (v).z + (v).w)
#define MAKE(v) item{(v), (v), (v), (v)}
#endif

// `at` counts in items. A block is a warp, and fills its memory first.
extern "C" __global__ void shared_pattern(int items, const int* at, unsigned* out) {
    extern __shared__ item places[];
    for (int i = threadIdx.x; i < items; i += blockDim.x) places[i] = MAKE(i);
    __syncthreads();
    int mine = at[blockIdx.x * blockDim.x + threadIdx.x];
#if STORES
    if (mine >= 0) places[mine] = MAKE(mine);
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = SUM(places[threadIdx.x]);
#else
    out[blockIdx.x * blockDim.x + threadIdx.x] = mine >= 0 ? SUM(places[mine]) : 0;
#endif
}
