// The epilogue's stores: accumulators, in registers as wgmma leaves them, become rows or columns of
// D.
//
// wgmma's D (PTX ISA 9.7.15.5.1.2): lane l of warp w holds rows 16 w + l / 4 and 8 below, and
// columns 8 j + 2 (l % 4) and the next.
//
// A warp assembles its 16 rows in buffers of its own in shared memory, OUT_COLUMNS columns at a
// time. From there they are stored by TMA where D allows it (TMA_OUT), and otherwise by the warp's
// threads, in aligned 16-byte stores whatever D's pitch and address.
#pragma once
#include "../ptx/convert.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/shared.cuh"
#include "../ptx/tma.cuh"
#include "hopper_fused.cuh"
#include "unaligned.cuh"

typedef float Sums[ROWS / 64][BLOCK_N / 2];

constexpr int OUT_LINE_BYTES = 2 * OUT_COLUMNS;   // a row of a TMA box of D
constexpr int OUT_BYTES = 16 * OUT_LINE_BYTES;    // the 16 rows of a warp

// Directly from registers. ``row`` and ``column`` are those of the thread's first accumulator.
__device__ inline void store_tile(const Sums& sum, int row, int column, const Out& out) {
#pragma unroll
    for (int j = 0; j < OUT_N / 8; ++j) {
#pragma unroll
        for (int half = 0; half < ROWS / 32; ++half) {
            const float* pair = &sum[half / 2][4 * j + half % 2 * 2];
            store_pair(pair[0], pair[1], row + 64 * (half / 2) + 8 * (half % 2), column + 8 * j,
                       out);
        }
    }
}

// The offset of 16-byte piece ``piece`` of row ``row`` in a swizzled box PIECES wide.
template <int PIECES> __device__ inline u32 swizzled(u32 row, u32 piece) {
    constexpr u32 CHANGED = PIECES < 8 ? PIECES : 8, ROWS_A_LINE = 8 / CHANGED;
    return row * (16 * PIECES) + 16 * (piece ^ (row / ROWS_A_LINE % CHANGED));
}

// A thread's accumulators of 16 columns as stmatrix takes them: rows 0 and 8, then 8 columns on.
__device__ inline void pack_pairs(const float* sum, float alpha, u32 (&pairs)[4]) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        pairs[r] = pack_pair<INPUT>(scaled(sum[2 * r], alpha), scaled(sum[2 * r + 1], alpha));
    }
}

// Stages columns COLUMNS * part and on of a warp's 16 rows as a swizzled box of OUTPUT.
template <int COLUMNS, bool FLOATS>
__device__ inline void stage_rows(const float (&sum)[BLOCK_N / 2], int part, u32 buffer, int lane,
                                  float alpha) {
    constexpr int PIECES = COLUMNS * (FLOATS ? 4 : 2) / 16;
    if constexpr (FLOATS) {
#pragma unroll
        for (int q = 0; q < COLUMNS / 8; ++q) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float* pair = &sum[COLUMNS / 2 * part + 4 * q + 2 * half];
                u32 to = swizzled<PIECES>(lane / 4 + 8 * half, 2 * q + lane % 4 / 2);
                st_shared(buffer + to + 8 * (lane % 2), scaled(pair[0], alpha), scaled(pair[1], alpha));
            }
        }
    } else {
        // A lane gives the address of one row of matrix lane / 8. The four matrices are
        // rows 0 and 8, and then the same 8 columns on.
        int line = lane % 16, beside = lane / 16;
#pragma unroll
        for (int q = 0; q < COLUMNS / 16; ++q) {
            u32 pairs[4];
            pack_pairs(&sum[COLUMNS / 2 * part + 8 * q], alpha, pairs);
            stmatrix_x4<false>(buffer + swizzled<PIECES>(line, 2 * q + beside), pairs);
        }
    }
}

// The same transposed: a box whose rows are columns of D, 16 elements each.
template <int COLUMNS, bool FLOATS>
__device__ inline void stage_columns(const float (&sum)[BLOCK_N / 2], int part, u32 buffer,
                                     int lane, float alpha) {
    constexpr int PIECES = FLOATS ? 4 : 2;
    if constexpr (FLOATS) {
#pragma unroll
        for (int q = 0; q < COLUMNS / 8; ++q) {
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                int row = lane / 4 + 8 * (r / 2), column = 8 * q + 2 * (lane % 4) + r % 2;
                st_shared(buffer + swizzled<PIECES>(column, row / 4) + 4 * (row % 4),
                             scaled(sum[COLUMNS / 2 * part + 4 * q + r], alpha));
            }
        }
    } else {
        int line = lane % 8, below = lane / 8 % 2, beside = lane / 16;
#pragma unroll
        for (int q = 0; q < COLUMNS / 16; ++q) {
            u32 pairs[4];
            pack_pairs(&sum[COLUMNS / 2 * part + 8 * q], alpha, pairs);
            u32 to = swizzled<PIECES>(16 * q + 8 * beside + line, below);
            stmatrix_x4<true>(buffer + to, pairs);
        }
    }
}

constexpr int ALL_COLUMNS = -1;

// Stores a warp's 16 rows by TMA, through its two buffers in turn; ``next`` is the one to fill first. Boxes that
// begin at column ``end`` or later are left out, where ``end`` is not ALL_COLUMNS.
template <bool EVICT_FIRST = false>
__device__ inline void tma_store_rows(const float (&sum)[BLOCK_N / 2], u32 buffers, int lane,
                                      const TensorMap& map, int row, int column, int end, int batch,
                                      float alpha, u32& next) {
    constexpr int COLUMNS = OUT_FLOAT ? OUT_COLUMNS / 2 : OUT_COLUMNS;
#pragma unroll
    for (int part = 0; part < OUT_N / COLUMNS; ++part) {
        if (end != ALL_COLUMNS && column + COLUMNS * part >= end) break;
        u32 buffer = buffers + next * OUT_BYTES;
        next ^= 1;
        if (lane == 0) tma_store_wait_group_read<1>();
        __syncwarp();
        if (OUT_COLUMN_MAJOR) {
            stage_columns<COLUMNS, OUT_FLOAT>(sum, part, buffer, lane, alpha);
        } else {
            stage_rows<COLUMNS, OUT_FLOAT>(sum, part, buffer, lane, alpha);
        }
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) {
            int x = column + COLUMNS * part;
            tma_store<EVICT_FIRST>(map, buffer, OUT_COLUMN_MAJOR ? row : x, OUT_COLUMN_MAJOR ? x : row, batch);
            tma_store_commit_group();
        }
    }
}

// A tile by TMA, through the warp's two buffers.
__device__ inline void tma_store_tile(const Sums& sum, u32 buffers, int lane, const TensorMap& map,
                                 int row, int column, int batch, float alpha, u32& next) {
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
        tma_store_rows(sum[i], buffers, lane, map, row + 64 * i, column, ALL_COLUMNS, batch, alpha, next);
    }
}

// How many elements past 16-byte alignment an element of D lies; the same for every eighth row.
__device__ inline int past_alignment(int row, int column, const Out& out) {
    return ((u32)((u64)out.d / 2) + row * (u32)out.ldd + column) % 8;
}

// The aligned 16-byte stores of a lane. In each group of OUT_COLUMNS columns, a lane of a row has 8
// elements; it stores the aligned 16 bytes that end among them. They begin in the 8 elements
// before, which for a row's first lane are in the other buffer.
struct AlignedStores {
    static constexpr int PIECES = OUT_COLUMNS / 8;
    static constexpr int APART = 32 / PIECES, LINES = 16 / APART;
    static constexpr int KINDS = LINES > 1 ? 8 / APART : 1;  // every eighth line has the same alignment
    int thread, back[KINDS];
    u32 own[KINDS], before[KINDS];
    u16* to[LINES];
    int room[LINES];  // the last column group start for which the 16 bytes end in the row
    uint4 x[LINES][2];

    __device__ AlignedStores(u32 buffers, int lane, int first_row, int first_column, int length,
                     const Out& out) {
        thread = lane % PIECES;
#pragma unroll
        for (int k = 0; k < LINES; ++k) {
            int line = lane / PIECES + APART * k, row = first_row + line;
            if (k < KINDS) {
                back[k] = past_alignment(row, first_column, out);
                own[k] = buffers + swizzled<PIECES>(line, thread);
                before[k] = buffers + swizzled<PIECES>(line, (thread + PIECES - 1) % PIECES);
            }
            int at = 8 * thread - back[k % KINDS];
            to[k] = (u16*)out.d + row * out.ldd + first_column + at;
            room[k] = row < out.m ? length - 8 - at : -1;
        }
    }

    __device__ void read(int part, int k) {
        u32 at = part % 2 * OUT_BYTES, below = k / KINDS * (8 * OUT_LINE_BYTES);
        u32 from = before[k % KINDS] + (thread ? at : OUT_BYTES - at);
        if (part == 0 && thread == 0) from = own[k % KINDS];  // the row has nothing before it
        x[k][0] = ld_shared_v4_u32(from + below);
        x[k][1] = ld_shared_v4_u32(own[k % KINDS] + at + below);
    }

    __device__ void store(int part, int k) const {
        uint4 word = aligned_before(x[k][0], x[k][1], back[k % KINDS]);
        bool is_in_row = part > 0 || 8 * thread >= back[k % KINDS];
        if (OUT_COLUMNS * part <= room[k] && is_in_row) {
            st_global(to[k] + OUT_COLUMNS * part, word);
        }
    }
};

// The lane's number, opaque to ptxas: what depends on it is computed again and not kept in
// registers that the accumulators need.
__device__ inline int opaque(int lane) { return __shfl_sync(~0u, lane, lane); }

// Rows of 16-bit elements, for any pitch and address of D, by aligned 16-byte stores. The elements
// at either end of a row that no aligned 16 bytes hold are stored one by one. ``first_row`` is the
// warp's, ``first_column`` the tile's.
__device__ inline void store_rows(const Sums& sum, u32 buffers, int lane, int first_row,
                                  int first_column, const Out& out) {
    constexpr int COLUMNS = OUT_COLUMNS, PIECES = AlignedStores::PIECES;
    // With registers to spare, a column group is stored after the next one is staged: the warp
    // need not wait for shared memory.
    constexpr bool LATE = sizeof(Sums) <= 128 * sizeof(float);
    int length = min(OUT_N, out.n - first_column);
    if (length <= 0) return;  // a tile past the end of D
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
        int row = first_row + 64 * i;
        AlignedStores words(buffers, lane, row, first_column, length, out);
        u16 heads[4], tails[4];
        auto store_head = [&](int e) {
            int of_line = row + lane / 8 + 4 * e, element = lane % 8;
            int head = -past_alignment(of_line, first_column, out) & 7;
            if (of_line >= out.m || element >= min(head, length)) return;
            ((u16*)out.d)[of_line * out.ldd + first_column + element] = heads[e];
        };
#pragma unroll
        for (int part = 0; part < OUT_N / COLUMNS; ++part) {
            if (COLUMNS * part >= length) break;
            u32 buffer = buffers + part % 2 * OUT_BYTES;
            if (!LATE) lane = opaque(lane);
            __syncwarp();
            stage_rows<COLUMNS, false>(sum[i], part, buffer, lane, out.alpha);
            __syncwarp();
#pragma unroll
            for (int k = 0; k < AlignedStores::LINES; ++k) {
                if (LATE && part > 0) words.store(part - 1, k);
            }
#pragma unroll
            for (int k = 0; k < AlignedStores::LINES; ++k) {
                if (!LATE && k % 2 == 0) {
                    lane = opaque(lane);
                    words = AlignedStores(buffers, lane, row, first_column, length, out);
                }
                words.read(part, k);
                if (!LATE) words.store(part, k);
            }
#pragma unroll
            for (int e = 0; part == 0 && e < 4; ++e) {
                u32 from = buffer + swizzled<PIECES>(lane / 8 + 4 * e, 0);
                heads[e] = ld_shared_u16(from + 2 * (lane % 8));
                if (!LATE) store_head(e);
            }
        }
        if (!LATE) lane = opaque(lane);
        int element = lane % 8, end = max(length - 1 - element, 0);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            u32 from = buffers + swizzled<PIECES>(lane / 8 + 4 * e, end % COLUMNS / 8);
            tails[e] = ld_shared_u16(from + end / COLUMNS % 2 * OUT_BYTES + 2 * (end % 8));
        }
#pragma unroll
        for (int k = 0; LATE && k < AlignedStores::LINES; ++k) words.store((length - 1) / COLUMNS, k);
#pragma unroll
        for (int e = 0; LATE && e < 4; ++e) store_head(e);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            int of_line = row + lane / 8 + 4 * e, over = past_alignment(of_line, first_column, out);
            int tail = length > (-over & 7) ? (length + over) % 8 : 0;
            if (of_line >= out.m || element >= tail) continue;
            ((u16*)out.d)[of_line * out.ldd + first_column + end] = tails[e];
        }
    }
}

// The same for float, or where C is read: element by element, neighbouring lanes neighbouring
// elements.
__device__ inline void store_float_rows(const Sums& sum, u32 buffer, int lane, int first_row,
                                        int first_column, const Out& out) {
    constexpr int COLUMNS = OUT_COLUMNS / 2, PIECES = COLUMNS / 4;
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int part = 0; part < OUT_N / COLUMNS; ++part) {
            int column = first_column + COLUMNS * part, length = min(COLUMNS, out.n - column);
            if (length <= 0) continue;
            __syncwarp();
            stage_rows<COLUMNS, true>(sum[i], part, buffer, lane, out.alpha);
            __syncwarp();
            int at = lane % COLUMNS;
#pragma unroll(ADDS_C ? 1 : 8)
            for (int line = lane / COLUMNS; line < 16; line += 32 / COLUMNS) {
                int row = first_row + 64 * i + line;
                if (row >= out.m || at >= length) continue;
                u32 from = buffer + swizzled<PIECES>(line, at / 4) + 4 * (at % 4);
                store_one(ld_shared_f32(from), row, column + at, out);
            }
        }
    }
}
