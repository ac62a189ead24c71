// Stores of D by threads, 16 bytes each, where its lines are 16-byte aligned. A tile's rows may end anywhere:
// a group's last tile leaves the next group's rows alone, which a TMA store would overwrite.

#include "hopper_store.cuh"

// Stores a warp's 16 rows, OUT_COLUMNS columns at a time, through ``buffer`` in shared memory. ``first_row`` is
// the warp's, ``first_column`` the tile's. Elements from row out.m or column out.n on are not stored.
__device__ inline void store_pieces(const Sums& sum, u32 buffer, int lane, int first_row,
                                    int first_column, const Out& out) {
    constexpr int COLUMNS = OUT_FLOAT ? OUT_COLUMNS / 2 : OUT_COLUMNS;
    constexpr int PIECE = 16 / sizeof(OUTPUT);  // elements
    constexpr int LINES = OUT_COLUMN_MAJOR ? COLUMNS : 16;
    constexpr int PIECES = (OUT_COLUMN_MAJOR ? 16 : COLUMNS) / PIECE;  // of a line
    static_assert(LINES * PIECES % 32 == 0, "whole warps of pieces");
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
        int row = first_row + 64 * i;
        if (row >= out.m) return;
#pragma unroll
        for (int part = 0; part < BLOCK_N / COLUMNS; ++part) {
            int column = first_column + COLUMNS * part;
            if (column >= out.n) break;
            __syncwarp();
            if (OUT_COLUMN_MAJOR) {
                stage_columns<COLUMNS, OUT_FLOAT>(sum[i], part, buffer, lane, out.alpha);
            } else {
                stage_rows<COLUMNS, OUT_FLOAT>(sum[i], part, buffer, lane, out.alpha);
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
}
