// Stores of D where its lines are 16-byte aligned. Of a tile in which a group ends, the next group's rows are
// left alone: threads store them, 16 bytes each, since a TMA store would write whole boxes.

#include "hopper_store.cuh"

// Stores a warp's 16 rows, OUT_COLUMNS columns at a time, through ``buffer`` in shared memory. ``row`` is the
// warp's first, ``first_column`` the tile's. Elements from row out.m or column out.n on are not stored.
__device__ inline void store_pieces_of_rows(const float (&sum)[BLOCK_N / 2], u32 buffer, int lane, int row,
                                            int first_column, const Out& out) {
    constexpr int COLUMNS = OUT_FLOAT ? OUT_COLUMNS / 2 : OUT_COLUMNS;
    constexpr int PIECE = 16 / sizeof(OUTPUT);  // elements
    constexpr int LINES = OUT_COLUMN_MAJOR ? COLUMNS : 16;
    constexpr int PIECES = (OUT_COLUMN_MAJOR ? 16 : COLUMNS) / PIECE;  // of a line
    static_assert(LINES * PIECES % 32 == 0, "whole warps of pieces");
#pragma unroll
    for (int part = 0; part < BLOCK_N / COLUMNS; ++part) {
        int column = first_column + COLUMNS * part;
        if (column >= out.n) break;
        __syncwarp();
        if (OUT_COLUMN_MAJOR) {
            stage_columns<COLUMNS, OUT_FLOAT>(sum, part, buffer, lane, out.alpha);
        } else {
            stage_rows<COLUMNS, OUT_FLOAT>(sum, part, buffer, lane, out.alpha);
        }
        __syncwarp();
#pragma unroll
        for (int each = 0; each < LINES * PIECES; each += 32) {
            int line = (each + lane) / PIECES, piece = (each + lane) % PIECES;
            uint4 x = ld_shared_v4_u32(buffer + swizzled<PIECES>(line, piece));
            int y = row + (OUT_COLUMN_MAJOR ? PIECE * piece : line);
            int z = column + (OUT_COLUMN_MAJOR ? line : PIECE * piece);
            if (y >= out.m || z >= out.n) continue;
            OUTPUT* to = (OUTPUT*)out.d + (OUT_COLUMN_MAJOR ? z * out.ldd + y : y * out.ldd + z);
            int room = OUT_COLUMN_MAJOR ? out.m - y : out.n - z;
            if (room >= PIECE) {
                st_global(to, x);
            } else {  // at the end of a line
                const u32 words[] = {x.x, x.y, x.z, x.w};
#pragma unroll
                for (int e = 0; e < PIECE - 1; ++e) {
                    if (e >= room) break;
                    if (OUT_FLOAT) {
                        ((u32*)to)[e] = words[e];
                    } else {
                        ((u16*)to)[e] = words[e / 2] >> e % 2 * 16;
                    }
                }
            }
        }
    }
}

// A warp's rows of a tile; the first is ``first_row``.
__device__ inline void store_pieces(const Sums& sum, u32 buffer, int lane, int first_row,
                                    int first_column, const Out& out) {
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
        int row = first_row + 64 * i;
        if (row >= out.m) return;
        store_pieces_of_rows(sum[i], buffer, lane, row, first_column, out);
    }
}

// Stores a warp's rows of a tile by TMA, through the warp's two buffers; ``next`` is the one to fill first. The
// threads store only the 16 rows in which a group of rows ends.
__device__ inline void store_by_tma(const Sums& sum, u32 buffers, int lane, const TensorMap& map,
                                    int first_row, int first_column, int batch, const Out& out, u32& next) {
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
        int row = first_row + 64 * i;
        if (row >= out.m) return;
        if (GROUPED == OF_M && row + 16 > out.m) {
            if (lane == 0) tma_store_wait_group_read<0>();  // other lanes write after the __syncwarp of the callee
            store_pieces_of_rows(sum[i], buffers, lane, row, first_column, out);
        } else {
            // With k in groups most of the traffic is D's: evict_first keeps A and B in L2.
            tma_store_rows<GROUPED == OF_K>(sum[i], buffers, lane, map, row, first_column, out.n, batch,
                                            out.alpha, next);
        }
    }
}
