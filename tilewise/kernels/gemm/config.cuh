// The Hopper kernel's tiles, as its macros ask for them; hopper.cu and hopper_sum.cu share them.
//
// Macros: INPUT (float16 or bfloat16), OUTPUT (INPUT or float), BLOCK_M, BLOCK_N,
// CONSUMERS, STAGES, CLUSTER_M, CLUSTER_N, SPLIT, SHARED_TILES, A_K_MAJOR and B_K_MAJOR (1 where k is the
// contiguous dimension), A_SHIFTED and B_SHIFTED (1 where rows or columns do not begin at multiples of
// 16 bytes, see load.cuh), RAW_STAGES (of a second ring, that they then are first copied to), A_ROWS
// (of a tile of A, that are copied where k is contiguous; the others belong to no row of D), READ_C
// (beta is not 0), TMA_OUT (D by bulk copies: rows of whole 16 bytes, beta 0), OUT_COLUMNS
// (of such a copy, 16-bit: 16, 32 or 64; floats half as many), OUT_BY_COLUMNS (the columns of C and D
// are contiguous, not the rows), GROUP_M, AHEAD (phases whose tiles are brought to the L2 cache while
// the kernels before end).

#ifndef INPUT
#define INPUT bfloat16
#endif
#ifndef OUTPUT
#define OUTPUT INPUT
#endif
#ifndef BLOCK_M
#define BLOCK_M 128
#endif
#ifndef BLOCK_N
#define BLOCK_N 256
#endif
#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#ifndef STAGES
#define STAGES 4
#endif
#ifndef CLUSTER_M
#define CLUSTER_M 1
#endif
#ifndef CLUSTER_N
#define CLUSTER_N 1
#endif
#ifndef SPLIT
#define SPLIT 1
#endif
#ifndef A_K_MAJOR
#define A_K_MAJOR 1
#endif
#ifndef B_K_MAJOR
#define B_K_MAJOR 1
#endif
#ifndef A_SHIFTED
#define A_SHIFTED 0
#endif
#ifndef B_SHIFTED
#define B_SHIFTED 0
#endif
#ifndef RAW_STAGES
#define RAW_STAGES 3
#endif
#ifndef READ_C
#define READ_C 1
#endif
#ifndef TMA_OUT
#define TMA_OUT 0
#endif
#ifndef OUT_BY_COLUMNS
#define OUT_BY_COLUMNS 0
#endif
#ifndef OUT_COLUMNS
#define OUT_COLUMNS (BLOCK_N % 64 == 0 ? 64 : BLOCK_N % 32 == 0 ? 32 : 16)
#endif
#ifndef SHARED_TILES
#define SHARED_TILES 0
#endif
#ifndef GROUP_M
#define GROUP_M 16
#endif
#ifndef AHEAD
#define AHEAD 0
#endif
#ifndef A_ROWS
#define A_ROWS BLOCK_M
#endif

#include "../ptx/cluster.cuh"
#include "../ptx/grid.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/shared.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"

constexpr bool OUT_FLOAT = sizeof(OUTPUT) == 4;
constexpr int BLOCK_K = 64;  // 128 bytes, the width of the swizzle
constexpr int ROWS = BLOCK_M / CONSUMERS;  // of one consumer warpgroup
constexpr bool SHIFTS = A_SHIFTED || B_SHIFTED, COPIES = !A_SHIFTED || !B_SHIFTED;
constexpr int LOADERS = SHIFTS ? 2 : 0;  // warpgroups
constexpr int THREADS = 128 * (1 + LOADERS + CONSUMERS);
constexpr int TILES = CLUSTER_M * CLUSTER_N;  // of a cluster at a time
constexpr int CLUSTER = TILES * SPLIT;
constexpr int SHARERS = CLUSTER_M + CLUSTER_N - 1;  // blocks that copy into one block's stage
constexpr int A_BYTES = BLOCK_M * BLOCK_K * 2;
constexpr int A_COPIED = A_K_MAJOR ? A_ROWS : BLOCK_M;
constexpr int B_BYTES = BLOCK_N * BLOCK_K * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int CHUNK_BYTES = 64 * BLOCK_K * 2;  // 64 rows or columns of an operand, one copy
constexpr int TILE_FLOATS = BLOCK_M * BLOCK_N;  // of one partial sum in the workspace

static_assert(ROWS % 64 == 0 && BLOCK_M <= 256, "whole wgmma rows, one box high");
static_assert(!A_K_MAJOR || A_ROWS / CLUSTER_N % 8 == 0, "whole groups of the swizzle");
static_assert(!B_K_MAJOR || BLOCK_N / CLUSTER_M % 8 == 0, "whole groups of the swizzle");
static_assert(!SHIFTS || TILES == 1, "what is shifted is one block's");
static_assert(RAW_STAGES >= 3, "two are finished while others are on their way");
static_assert(SPLIT == 1 || TILES == 1 && !SHARED_TILES, "one way to divide");
static_assert((SPLIT - 1) * 4 * BLOCK_M * BLOCK_N <= STAGES * STAGE_BYTES, "sums fit the ring");
static_assert(BLOCK_N % 16 == 0 && BLOCK_N <= 256, "one wgmma wide");
static_assert(B_K_MAJOR || BLOCK_N % 64 == 0, "whole boxes of 64 columns");
static_assert(BLOCK_N % OUT_COLUMNS == 0, "whole boxes of D");
