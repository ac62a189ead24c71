// A tile's end: the sums, in registers as wgmma leaves them, become rows or columns of D.
//
// wgmma's D (PTX ISA 9.7.15.5.1.2): lane l of warp w holds rows 16 w + l / 4 and 8 below, and
// columns 8 j + 2 (l % 4) and the next.
//
// Whole rows are put together in shared memory, a chunk of columns of a warp's 16 rows at a time,
// in buffers of the warp's own. From there a bulk copy takes them where D lets it (TMA_OUT), and
// else the warp's threads, 16 aligned bytes each, whatever D's pitch and address.

// C and D, and what is to be done to the sums.
struct Out {
    int m, n;
    float alpha, beta;
    const void* c;
    u64 ldc, c_step;
    void* d;
    u64 ldd, d_step;
};

typedef float Sums[ROWS / 64][BLOCK_N / 2];
typedef unsigned short u16;

constexpr int OUT_LINE_BYTES = 2 * OUT_COLUMNS;   // a row of a bulk copy of D
constexpr int OUT_BYTES = 16 * OUT_LINE_BYTES;    // a warp's 16 rows of one

__device__ inline Out of_batch(Out out, int batch) {
    constexpr int SIZE = OUT_FLOAT ? 4 : 2;
    out.c = (const char*)out.c + batch * out.c_step * SIZE;
    out.d = (char*)out.d + batch * out.d_step * SIZE;
    return out;
}

__device__ inline float read_out(const void* c, u64 at) {
    if (OUT_FLOAT) return ((const float*)c)[at];
    return OF_HALF(((const u16*)c)[at]);
}

// One element of D from its product.
__device__ inline void store_one(float x, u64 row, u64 column, const Out& out) {
    if (READ_C) {
        u64 from = OUT_BY_COLUMNS ? column * out.ldc + row : row * out.ldc + column;
        x += out.beta * read_out(out.c, from);
    }
    u64 at = OUT_BY_COLUMNS ? column * out.ldd + row : row * out.ldd + column;
    if (OUT_FLOAT) {
        ((float*)out.d)[at] = x;
    } else {
        ((u16*)out.d)[at] = pack_halves(x, 0);
    }
}

// Two neighbours of a row, at once where they can be.
__device__ inline void store_pair(float x, float y, int row, int column, const Out& out) {
    if (row >= out.m || column >= out.n) return;
    x *= out.alpha;
    y *= out.alpha;
    if (!OUT_BY_COLUMNS && !READ_C && column + 1 < out.n) {
        char* to = (char*)out.d + (row * out.ldd + column) * (OUT_FLOAT ? 4 : 2);
        if ((u64)to % (OUT_FLOAT ? 8 : 4) == 0) {
            if (OUT_FLOAT) {
                *(float2*)to = make_float2(x, y);
            } else {
                *(u32*)to = pack_halves(x, y);
            }
            return;
        }
    }
    store_one(x, row, column, out);
    if (column + 1 < out.n) store_one(y, row, column + 1, out);
}

// Element by element, as the sums lie. ``row`` and ``column`` are those of the thread's first.
__device__ inline void store_tile(const Sums& sum, int row, int column, const Out& out) {
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; ++j) {
#pragma unroll
        for (int half = 0; half < ROWS / 32; ++half) {
            const float* pair = &sum[half / 2][4 * j + half % 2 * 2];
            store_pair(pair[0], pair[1], row + 64 * (half / 2) + 8 * (half % 2), column + 8 * j,
                       out);
        }
    }
}

// Where 16-byte piece ``piece`` of row ``row`` is in a swizzled box that is ``PIECES`` wide.
template <int PIECES> __device__ inline u32 swizzled(u32 row, u32 piece) {
    constexpr u32 CHANGED = PIECES < 8 ? PIECES : 8, ROWS_A_LINE = 8 / CHANGED;
    return row * (16 * PIECES) + 16 * (piece ^ (row / ROWS_A_LINE % CHANGED));
}

// A thread's sums of 16 columns as store_matrices takes them: of rows 0 and 8, then 8 columns on.
__device__ inline void pack_pairs(const float* sum, float alpha, u32 (&pairs)[4]) {
#pragma unroll
    for (int r = 0; r < 4; ++r) pairs[r] = pack_halves(alpha * sum[2 * r], alpha * sum[2 * r + 1]);
}

// Columns ``COLUMNS * part`` and on of a warp's 16 rows, as a swizzled box of 16-bit numbers or
// floats.
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
                shared_store(buffer + to + 8 * (lane % 2), alpha * pair[0], alpha * pair[1]);
            }
        }
    } else {
        // A lane gives the address of a row of 8 elements: of matrix lane / 8 of four, which stand
        // in rows 0 and 8, and then 8 columns further on.
        int line = lane % 16, beside = lane / 16;
#pragma unroll
        for (int q = 0; q < COLUMNS / 16; ++q) {
            u32 pairs[4];
            pack_pairs(&sum[COLUMNS / 2 * part + 8 * q], alpha, pairs);
            store_matrices<false>(buffer + swizzled<PIECES>(line, 2 * q + beside), pairs);
        }
    }
}

// The same turned: a box whose rows are columns of D, 16 elements each.
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
                shared_store(buffer + swizzled<PIECES>(column, row / 4) + 4 * (row % 4),
                             alpha * sum[COLUMNS / 2 * part + 4 * q + r]);
            }
        }
    } else {
        int line = lane % 8, below = lane / 8 % 2, beside = lane / 16;
#pragma unroll
        for (int q = 0; q < COLUMNS / 16; ++q) {
            u32 pairs[4];
            pack_pairs(&sum[COLUMNS / 2 * part + 8 * q], alpha, pairs);
            u32 to = swizzled<PIECES>(16 * q + 8 * beside + line, below);
            store_matrices<true>(buffer + to, pairs);
        }
    }
}

// By bulk copies, through a warp's two buffers in turn.
__device__ inline void copy_tile(const Sums& sum, u32 buffers, int lane, const TensorMap& map,
                                 int row, int column, int batch, float alpha, u32& turn) {
    constexpr int COLUMNS = OUT_FLOAT ? OUT_COLUMNS / 2 : OUT_COLUMNS;
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int part = 0; part < BLOCK_N / COLUMNS; ++part) {
            u32 buffer = buffers + turn * OUT_BYTES;
            turn ^= 1;
            if (lane == 0) tma_store_wait_read<1>();
            __syncwarp();
            if (OUT_BY_COLUMNS) {
                stage_columns<COLUMNS, OUT_FLOAT>(sum[i], part, buffer, lane, alpha);
            } else {
                stage_rows<COLUMNS, OUT_FLOAT>(sum[i], part, buffer, lane, alpha);
            }
            fence_async();
            __syncwarp();
            if (lane == 0) {
                int x = column + COLUMNS * part, y = row + 64 * i;
                tma_store(map, buffer, OUT_BY_COLUMNS ? y : x, OUT_BY_COLUMNS ? x : y, batch);
                tma_store_commit();
            }
        }
    }
}

// Elements ``begin`` up to ``end`` of a row of D; the swizzled box has those from ``first`` on.
template <int PIECES>
__device__ inline void store_elements(u32 buffer, int line, int thread, u16* to,
                                      int first, int begin, int end) {
    for (int i = begin + thread; i < end; i += PIECES) {
        int at = i - first;
        to[i] = shared_half(buffer + swizzled<PIECES>(line, at / 8) + 2 * (at % 8));
    }
}

// By rows, for a D of any pitch and address: 16-bit numbers, 16 aligned bytes a thread. Such a word
// ends in the 8 elements that the thread reads, and begins in those before, which for the first
// thread of a row are in the other buffer. ``first_row`` is the warp's, ``first_column`` the tile's.
__device__ inline void store_rows(const Sums& sum, u32 buffers, int lane, int first_row,
                                  int first_column, const Out& out) {
    constexpr int COLUMNS = OUT_COLUMNS, PIECES = COLUMNS / 8;
    int thread = lane % PIECES, length = min(BLOCK_N, out.n - first_column);
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int part = 0; part < BLOCK_N / COLUMNS; ++part) {
            int begin = COLUMNS * part, end = min(begin + COLUMNS, length);
            if (begin >= length) continue;
            u32 buffer = buffers + part % 2 * OUT_BYTES;
            u32 other = buffers + (part + 1) % 2 * OUT_BYTES;
            __syncwarp();
            stage_rows<COLUMNS, false>(sum[i], part, buffer, lane, out.alpha);
            __syncwarp();
#pragma unroll
            for (int line = lane / PIECES; line < 16; line += 32 / PIECES) {
                int row = first_row + 64 * i + line;
                if (row >= out.m) continue;
                u16* to = (u16*)out.d + row * out.ldd + first_column;
                int head = -((u64)to / 2) % 8, words = max(length - head, 0) / 8;
                int at = begin + 8 * thread - (head ? 8 - head : 0);
                if (at >= 0 && at + 8 <= length) {
                    uint4 x = shared_word(buffer + swizzled<PIECES>(line, thread));
                    if (head) {
                        u32 from = thread ? buffer + swizzled<PIECES>(line, thread - 1)
                                          : other + swizzled<PIECES>(line, PIECES - 1);
                        x = joined(shared_word(from), x, 2 * head);
                    }
                    *(uint4*)(to + at) = x;
                }
                if (part == 0) {
                    store_elements<PIECES>(buffer, line, thread, to, 0, 0, min(head, end));
                }
                int tail = max(head + 8 * words, begin);
                if (tail < end) {
                    store_elements<PIECES>(buffer, line, thread, to, begin, tail, end);
                }
            }
        }
    }
}

// The same for floats, or where C is read: element by element, but neighbours at a time.
__device__ inline void store_float_rows(const Sums& sum, u32 buffer, int lane, int first_row,
                                        int first_column, const Out& out) {
    constexpr int COLUMNS = OUT_COLUMNS / 2, PIECES = COLUMNS / 4;
#pragma unroll
    for (int i = 0; i < ROWS / 64; ++i) {
#pragma unroll
        for (int part = 0; part < BLOCK_N / COLUMNS; ++part) {
            int column = first_column + COLUMNS * part, length = min(COLUMNS, out.n - column);
            if (length <= 0) continue;
            __syncwarp();
            stage_rows<COLUMNS, true>(sum[i], part, buffer, lane, out.alpha);
            __syncwarp();
            int at = lane % COLUMNS;
#pragma unroll(READ_C ? 1 : 8)
            for (int line = lane / COLUMNS; line < 16; line += 32 / COLUMNS) {
                int row = first_row + 64 * i + line;
                if (row >= out.m || at >= length) continue;
                u32 from = buffer + swizzled<PIECES>(line, at / 4) + 4 * (at % 4);
                store_one(shared_float(from), row, column + at, out);
            }
        }
    }
}
