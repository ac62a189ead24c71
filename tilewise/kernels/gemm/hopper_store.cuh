// The epilogue's stores: accumulators, in registers as wgmma leaves them, become rows or columns of
// D.
//
// wgmma's D (PTX ISA 9.7.15.5.1.2): lane l of warp w holds rows 16 w + l / 4 and 8 below, and
// columns 8 j + 2 (l % 4) and the next.
//
// A warp assembles its 16 rows in buffers of its own in shared memory, OUT_COLUMNS columns at a
// time. From there they are stored by TMA where D allows it (Out::by_tma), and otherwise by the
// warp's threads: rows of 16-bit elements in aligned 16-byte stores whatever D's pitch and address,
// and all else element by element.
//
// store_tile chooses among them by D. What most products need, copy_tile, is in kernels of its own
// (TMA_OUT), and unrolled over the whole tile. The others are loops in which no more is unrolled than
// takes accumulators: else they would take most of the time to compile a kernel.

#include "../ptx/convert.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/shared.cuh"
#include "../ptx/tma.cuh"
#include "hopper_out.cuh"
#include "unaligned.cuh"

typedef float Sums[ROWS / 64][BLOCK_N / 2];

// The lane's number, opaque to ptxas: what depends on it is computed again and not kept in
// registers that the accumulators need.
__device__ inline int opaque(int lane) { return __shfl_sync(~0u, lane, lane); }

__device__ inline void scale(Sums& sum, float alpha) {
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int j = 0; j < BLOCK_N / 2; ++j) sum[i][j] = scaled(sum[i][j], alpha);
    }
}

// Calls ``use(x)`` with an x, of FIRST to END - 1, that is a constant to the compiler: for loops that
// are not unrolled, but take other accumulators at each turn.
template <int FIRST, int END, class Use> __device__ inline void with_constant(int x, Use use) {
    if constexpr (END - FIRST == 1) {
        use(FIRST);
    } else {
        constexpr int MIDDLE = (FIRST + END) / 2;
        if (x < MIDDLE) {
            with_constant<FIRST, MIDDLE>(x, use);
        } else {
            with_constant<MIDDLE, END>(x, use);
        }
    }
}

constexpr int OUT_LINE_BYTES = 2 * OUT_COLUMNS;   // a row of a TMA box of D
constexpr int OUT_BYTES = 16 * OUT_LINE_BYTES;    // the 16 rows of a warp

// The offset of 16-byte piece ``piece`` of row ``row`` in a swizzled box PIECES wide.
template <int PIECES> __device__ inline u32 swizzled(u32 row, u32 piece) {
    constexpr u32 CHANGED = PIECES < 8 ? PIECES : 8, ROWS_A_LINE = 8 / CHANGED;
    return row * (16 * PIECES) + 16 * (piece ^ (row / ROWS_A_LINE % CHANGED));
}

// A thread's scaled accumulators of 16 columns as stmatrix takes them: rows 0 and 8, then 8 columns on.
__device__ inline void pack_pairs(const float* sum, u32 (&pairs)[4]) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        pairs[r] = pack_pair<INPUT>(sum[2 * r], sum[2 * r + 1]);
    }
}

// Stages columns COLUMNS * part and on of a warp's 16 rows as a swizzled box, of floats or of INPUT.
template <int COLUMNS, bool FLOATS>
__device__ inline void stage_rows(const float (&sum)[BLOCK_N / 2], int part, u32 buffer, int lane) {
    constexpr int PIECES = COLUMNS * (FLOATS ? 4 : 2) / 16;
    if constexpr (FLOATS) {
#pragma unroll
        for (int q = 0; q < COLUMNS / 8; ++q) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float* pair = &sum[COLUMNS / 2 * part + 4 * q + 2 * half];
                u32 to = swizzled<PIECES>(lane / 4 + 8 * half, 2 * q + lane % 4 / 2);
                st_shared(buffer + to + 8 * (lane % 2), pair[0], pair[1]);
            }
        }
    } else {
        // A lane gives the address of one row of matrix lane / 8. The four matrices are
        // rows 0 and 8, and then the same 8 columns on.
        int line = lane % 16, beside = lane / 16;
#pragma unroll
        for (int q = 0; q < COLUMNS / 16; ++q) {
            u32 pairs[4];
            pack_pairs(&sum[COLUMNS / 2 * part + 8 * q], pairs);
            stmatrix_x4<false>(buffer + swizzled<PIECES>(line, 2 * q + beside), pairs);
        }
    }
}

// The same transposed: a box whose rows are columns of D, 16 elements each.
template <int COLUMNS, bool FLOATS>
__device__ inline void stage_columns(const float (&sum)[BLOCK_N / 2], int part, u32 buffer,
                                     int lane) {
    constexpr int PIECES = FLOATS ? 4 : 2;
    if constexpr (FLOATS) {
#pragma unroll
        for (int q = 0; q < COLUMNS / 8; ++q) {
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                int row = lane / 4 + 8 * (r / 2), column = 8 * q + 2 * (lane % 4) + r % 2;
                st_shared(buffer + swizzled<PIECES>(column, row / 4) + 4 * (row % 4),
                             sum[COLUMNS / 2 * part + 4 * q + r]);
            }
        }
    } else {
        int line = lane % 8, below = lane / 8 % 2, beside = lane / 16;
#pragma unroll
        for (int q = 0; q < COLUMNS / 16; ++q) {
            u32 pairs[4];
            pack_pairs(&sum[COLUMNS / 2 * part + 8 * q], pairs);
            u32 to = swizzled<PIECES>(16 * q + 8 * beside + line, below);
            stmatrix_x4<true>(buffer + to, pairs);
        }
    }
}

// D's 16-bit elements by TMA, through the warp's two buffers in turn.
template <bool COLUMN_MAJOR>
__device__ inline void copy_tile(const Sums& sum, u32 buffers, int lane, const TensorMap& map,
                                 int row, int column, int batch, u32& turn) {
    constexpr int COLUMNS = OUT_COLUMNS;
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int part = 0; part < BLOCK_N / COLUMNS; ++part) {
            u32 buffer = buffers + turn * OUT_BYTES;
            turn ^= 1;
            if (lane == 0) tma_store_wait_group_read<1>();
            __syncwarp();
            if (COLUMN_MAJOR) {
                stage_columns<COLUMNS, false>(sum[i], part, buffer, lane);
            } else {
                stage_rows<COLUMNS, false>(sum[i], part, buffer, lane);
            }
            fence_proxy_async();
            __syncwarp();
            if (lane == 0) {
                int x = column + COLUMNS * part, y = row + 64 * i;
                tma_store(map, buffer, COLUMN_MAJOR ? y : x, COLUMN_MAJOR ? x : y, batch);
                tma_store_commit_group();
            }
        }
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

// Rows of 16-bit elements, for any pitch and address of D, by aligned 16-byte stores. The elements
// at either end of a row that no aligned 16 bytes hold are stored one by one. ``first_row`` is the
// warp's, ``first_column`` the tile's.
__device__ inline void store_rows(const Sums& sum, u32 buffers, int lane, int first_row,
                                  int first_column, const Out& out) {
    constexpr int COLUMNS = OUT_COLUMNS, PIECES = AlignedStores::PIECES;
    constexpr int PARTS = BLOCK_N / COLUMNS;
    // With registers to spare, a column group is stored after the next one is staged: the warp
    // need not wait for shared memory.
    constexpr bool LATE = sizeof(Sums) <= 128 * sizeof(float);
    int length = min(BLOCK_N, out.n - first_column);
    if (length <= 0) return;  // a tile past the end of D
#pragma unroll 1
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
#pragma unroll 1
        for (int part = 0; COLUMNS * part < length; ++part) {
            u32 buffer = buffers + part % 2 * OUT_BYTES;
            if (!LATE) lane = opaque(lane);
            __syncwarp();
            with_constant<0, ROWS / 64 * PARTS>(i * PARTS + part, [&](int s) {
                stage_rows<COLUMNS, false>(sum[s / PARTS], s % PARTS, buffer, lane);
            });
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

// Any kind of D, through floats in the warp's two buffers: by TMA if D is float, and else element by
// element, neighbouring lanes neighbouring elements. ``first_row`` is the warp's, ``first_column``
// the tile's.
__device__ inline void store_floats(const Sums& sum, u32 buffers, int lane, const TensorMap& map,
                                    int first_row, int first_column, int batch, const Out& out,
                                    u32& turn) {
    constexpr int COLUMNS = OUT_COLUMNS / 2, PIECES = COLUMNS / 4, PARTS = BLOCK_N / COLUMNS;
    constexpr int STEPS = ROWS / 64 * PARTS;
    const bool is_transposed = out.by_tma && out.is_column_major;
    const Out of_matrix = of_batch(out, batch);
#pragma unroll 1
    for (int step = 0; step < STEPS; ++step) {
        int row = first_row + step / PARTS * 64, column = first_column + step % PARTS * COLUMNS;
        u32 buffer = buffers + turn * OUT_BYTES;
        turn ^= 1;
        lane = opaque(lane);
        if (out.by_tma && lane == 0) tma_store_wait_group_read<1>();
        __syncwarp();
        if (is_transposed) {
            with_constant<0, STEPS>(step, [&](int s) {
                stage_columns<COLUMNS, true>(sum[s / PARTS], s % PARTS, buffer, lane);
            });
        } else {
            with_constant<0, STEPS>(step, [&](int s) {
                stage_rows<COLUMNS, true>(sum[s / PARTS], s % PARTS, buffer, lane);
            });
        }
        if (out.by_tma) fence_proxy_async();
        __syncwarp();
        if (out.by_tma) {
            if (lane == 0) {
                tma_store(map, buffer, is_transposed ? row : column, is_transposed ? column : row,
                          batch);
                tma_store_commit_group();
            }
            continue;
        }
        // Neighbouring lanes have neighbouring columns, or rows if D is column-major.
        const int width = out.is_column_major ? 16 : COLUMNS;
        const int along = lane % width, first = lane / width, lines = 16 * COLUMNS / width;
#pragma unroll 2
        for (int line = first; line < lines; line += 32 / width) {
            int down = out.is_column_major ? along : line, right = out.is_column_major ? line : along;
            if (row + down >= out.m || column + right >= out.n) continue;
            u32 from = buffer + swizzled<PIECES>(down, right / 4) + 4 * (right % 4);
            store_one(ld_shared_f32(from), row + down, column + right, of_matrix);
        }
    }
}

// A warp's rows of a tile. ``turn`` says which of its two buffers is next.
__device__ inline void store_tile(Sums& sum, u32 buffers, int lane, const TensorMap& map, int row,
                                  int column, int batch, const Out& out, u32& turn) {
    if (out.alpha != 1) scale(sum, out.alpha);
    if constexpr (TMA_OUT) {
        if (out.is_column_major) {
            copy_tile<true>(sum, buffers, lane, map, row, column, batch, turn);
        } else {
            copy_tile<false>(sum, buffers, lane, map, row, column, batch, turn);
        }
    } else if (out.is_float || out.reads_c || out.is_column_major) {
        store_floats(sum, buffers, lane, map, row, column, batch, out, turn);
    } else {
        store_rows(sum, buffers, lane, row, column, of_batch(out, batch));
    }
}
