// The Hopper kernel's tiles, as its macros ask for them; hopper.cu and hopper_sum.cu share them.
//
// Macros: INPUT (float16 or bfloat16), OUTPUT (INPUT or float), BLOCK_M, BLOCK_N,
// CONSUMERS, STAGES, CLUSTER_M, CLUSTER_N, SPLIT, STREAM_K, A_K_MAJOR and B_K_MAJOR (1 where k is the
// contiguous dimension), A_UNALIGNED and B_UNALIGNED (1 where rows or columns do not begin at multiples of
// 16 bytes, see hopper_load.cuh), RAW_STAGES (of a second ring, that they then are first copied to), A_ROWS
// (of a tile of A, that are copied where k is contiguous; the others belong to no row of D), READ_C
// (beta is not 0), TMA_OUT (D by bulk copies: rows of whole 16 bytes, beta 0), OUT_COLUMNS
// (of such a copy, 16-bit: 16, 32 or 64; floats half as many), OUT_COLUMN_MAJOR (the columns of C and D
// are contiguous, not the rows), GROUP_M, L2_PREFETCH (phases whose tiles are brought to the L2 cache while
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
#ifndef A_UNALIGNED
#define A_UNALIGNED 0
#endif
#ifndef B_UNALIGNED
#define B_UNALIGNED 0
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
#ifndef OUT_COLUMN_MAJOR
#define OUT_COLUMN_MAJOR 0
#endif
#ifndef OUT_COLUMNS
#define OUT_COLUMNS (BLOCK_N % 64 == 0 ? 64 : BLOCK_N % 32 == 0 ? 32 : 16)
#endif
#ifndef STREAM_K
#define STREAM_K 0
#endif
#ifndef GROUP_M
#define GROUP_M 16
#endif
#ifndef L2_PREFETCH
#define L2_PREFETCH 0
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
constexpr bool HAS_UNALIGNED = A_UNALIGNED || B_UNALIGNED, COPIES = !A_UNALIGNED || !B_UNALIGNED;
constexpr int LOADERS = HAS_UNALIGNED ? 2 : 0;  // warpgroups
constexpr int THREADS = 128 * (1 + LOADERS + CONSUMERS);
constexpr int TILES = CLUSTER_M * CLUSTER_N;  // of a cluster at a time
constexpr int CLUSTER = TILES * SPLIT;
constexpr int MULTICAST_PEERS = CLUSTER_M + CLUSTER_N - 1;  // blocks that copy into one block's stage
constexpr int A_BYTES = BLOCK_M * BLOCK_K * 2;
constexpr int A_COPIED = A_K_MAJOR ? A_ROWS : BLOCK_M;
constexpr int B_BYTES = BLOCK_N * BLOCK_K * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int BOX_BYTES = 64 * BLOCK_K * 2;  // 64 rows or columns of an operand, one copy
constexpr int TILE_FLOATS = BLOCK_M * BLOCK_N;  // of one partial sum in the workspace

static_assert(ROWS % 64 == 0 && BLOCK_M <= 256, "whole wgmma rows, one box high");
static_assert(!A_K_MAJOR || A_ROWS / CLUSTER_N % 8 == 0, "whole groups of the swizzle");
static_assert(!B_K_MAJOR || BLOCK_N / CLUSTER_M % 8 == 0, "whole groups of the swizzle");
static_assert(!HAS_UNALIGNED || TILES == 1, "what is shifted is one block's");
static_assert(RAW_STAGES >= 3, "two are finished while others are on their way");
static_assert(SPLIT == 1 || TILES == 1 && !STREAM_K, "one way to divide");
static_assert((SPLIT - 1) * 4 * BLOCK_M * BLOCK_N <= STAGES * STAGE_BYTES, "sums fit the ring");
static_assert(BLOCK_N % 16 == 0 && BLOCK_N <= 256, "one wgmma wide");
static_assert(B_K_MAJOR || BLOCK_N % 64 == 0, "whole boxes of 64 columns");
static_assert(BLOCK_N % OUT_COLUMNS == 0, "whole boxes of D");
