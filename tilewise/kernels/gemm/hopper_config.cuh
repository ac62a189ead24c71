// The compile-time choices of hopper.cu, and what follows from them.
//
// Types     INPUT (float16 or bfloat16: A and B), OUTPUT (INPUT or float: C and D)
// Layout    A_K_MAJOR, B_K_MAJOR: 1 where k is the contiguous dimension, 0 for MN-major
//           A_UNALIGNED, B_UNALIGNED: 1 where not all lines (rows, or columns, whichever are contiguous)
//           are 16-byte aligned (hopper_load.cuh)
// Tile      BLOCK_M, BLOCK_N; CONSUMERS: warpgroups that multiply, each its rows of the tile, or
//           with PING_PONG, whole tiles in turn: one's epilogue overlaps the other's mainloop
//           A_ROWS: rows of a tile of a K-major, unaligned A that are loaded: BLOCK_M, or fewer where D
//           has fewer; of an aligned A, they are the kernel's argument a_rows
// Pipeline  STAGES; RAW_STAGES, of the second ring that unaligned operands are first copied to
// Cluster   CLUSTER_M, CLUSTER_N: blocks of a cluster along M and N
// Along k   SPLIT: blocks of a cluster that divide k; STREAM_K: 1 where the last tiles are divided
// Epilogue  READ_C, OUT_COLUMN_MAJOR: those of hopper_out.cuh
//           PAIRS: that of fused.cuh; of D a tile has half as many columns. One thread has both
//           accumulators of a pair: the first half of a tile's columns are of the one matrix B, and the
//           second half the same columns of the other. With INTERLEAVED, both are in one matrix B, whose
//           neighbouring columns are pairs
//           TMA_OUT: 1 where D is stored by TMA: lines of whole 16 bytes, 16-byte aligned, beta 0
//           OUT_COLUMNS: columns of D that a warp stages and stores at a time, by TMA or itself: 16, 32
//           or 64 of 16-bit elements, half as many floats
//           STAGED, STAGED_APART: the operand of a caller's function that is copied to shared memory, and 1
//           where that is memory of its own (hopper_staged.cuh)
// Order     GROUP_M: that of hopper_tile.cuh

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
#ifndef PING_PONG
#define PING_PONG 0
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
#ifndef TMA_OUT
#define TMA_OUT 0
#endif
#ifndef OUT_COLUMNS
#define OUT_COLUMNS (OUT_N % 64 == 0 ? 64 : OUT_N % 32 == 0 ? 32 : 16)
#endif
#ifndef STREAM_K
#define STREAM_K 0
#endif
#ifndef A_ROWS
#define A_ROWS BLOCK_M
#endif

#ifndef INTERLEAVED
#define INTERLEAVED 0
#endif

#include "fused.cuh"
#include "../ptx/cluster.cuh"
#include "../ptx/grid.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/shared.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/wgmma.cuh"

constexpr int BLOCK_K = 64;  // 128 bytes, the width of the swizzle
constexpr int SHARERS = PING_PONG ? 1 : CONSUMERS;  // consumer warpgroups that share a tile
constexpr int ROWS = BLOCK_M / SHARERS;  // of one consumer warpgroup
constexpr bool HAS_UNALIGNED = A_UNALIGNED || B_UNALIGNED;
constexpr bool HAS_TMA = !A_UNALIGNED || !B_UNALIGNED;
constexpr int LOADERS = HAS_UNALIGNED ? 2 : 0;  // warpgroups of producers by cp.async
constexpr int THREADS = 128 * (1 + LOADERS + CONSUMERS);
constexpr int TILES = CLUSTER_M * CLUSTER_N;  // that a cluster computes at a time
constexpr int CLUSTER = TILES * SPLIT;
constexpr int MULTICAST_PEERS = CLUSTER_M + CLUSTER_N - 1;  // blocks that load into a stage
constexpr int A_BYTES = BLOCK_M * BLOCK_K * 2;
constexpr int A_EXTENT = A_K_MAJOR && A_UNALIGNED ? A_ROWS : BLOCK_M;
constexpr int B_BYTES = BLOCK_N * BLOCK_K * 2;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int BOX_BYTES = 64 * BLOCK_K * 2;  // 64 rows or columns of an operand, one TMA box
#define TWO_B (PAIRS && !INTERLEAVED)
constexpr int OUT_N = PAIRS ? BLOCK_N / 2 : BLOCK_N;      // columns of D in a tile
constexpr int B_COLUMNS = TWO_B ? BLOCK_N / 2 : BLOCK_N;  // of each matrix B
// Columns of a TMA box of B, if MN-major. Its rows, 128 bytes or 64, are as wide as its swizzle.
constexpr int B_BOX_COLUMNS = B_K_MAJOR || B_COLUMNS % 64 == 0 ? 64 : 32;
constexpr int TILE_FLOATS = BLOCK_M * BLOCK_N;  // of one partial sum in the workspace

static_assert(ROWS % 64 == 0 && BLOCK_M <= 256, "whole wgmmas of 64 rows; a TMA box has at most 256");
static_assert(!A_K_MAJOR || BLOCK_M / CLUSTER_N % 8 == 0 && A_EXTENT % 8 == 0, "whole groups of 8 rows of the swizzle");
static_assert(!B_K_MAJOR || B_COLUMNS / CLUSTER_M % 8 == 0, "whole groups of 8 rows of the swizzle");
static_assert(!HAS_UNALIGNED || TILES == 1, "unaligned operands are not multicast");
static_assert(!PING_PONG || CONSUMERS == 2 && SPLIT == 1 && !HAS_UNALIGNED,
              "PING_PONG needs two consumers and aligned operands, and excludes split-K");
static_assert(RAW_STAGES >= 3, "two stages are read while others are in flight");
static_assert(SPLIT == 1 || TILES == 1 && !STREAM_K, "either split-K or stream-K, and split-K takes a cluster");
static_assert((SPLIT - 1) * 4 * BLOCK_M * BLOCK_N <= STAGES * STAGE_BYTES, "the other blocks' accumulators fit the ring");
static_assert(BLOCK_N % 16 == 0 && BLOCK_N <= 256, "the width of one wgmma");
static_assert(B_K_MAJOR || B_COLUMNS % (B_UNALIGNED ? 64 : 32) == 0, "whole TMA boxes, or chunks of 64 columns");
static_assert(OUT_N % OUT_COLUMNS == 0, "whole TMA boxes of D");
static_assert(!TWO_B || !B_UNALIGNED, "two matrices B are loaded by TMA");
