// How a k-step's tiles of A and B get from global memory to where wgmma reads them.
//
// TMA needs lines (rows, or columns, whichever are contiguous) that are 16-byte aligned, and writes
// a tile as wgmma takes it. Where they are not aligned (A_UNALIGNED, B_UNALIGNED), threads load
// them by cp.async to a raw ring in shared memory, in whole aligned 128-byte chunks (anything else
// costs the L2 cache another request), and from there, realigned, to the stage that wgmma reads.

#include "../ptx/cp_async.cuh"
#include "../ptx/shared.cuh"
#include "../ptx/tma.cuh"

constexpr int LINE_BYTES = 2 * BLOCK_K;  // a row of a tile in shared memory: 64 elements

// A or B, by a tensor map; or in global memory, where its lines are not 16-byte aligned.
struct MappedOperand {
    TensorMap map;
    int batches;  // 1 where the whole batch shares one matrix
};
struct UnalignedOperand {
    const char* begin;
    u64 bytes;        // from ``begin`` to the end of the last element
    u64 pitch, step;  // bytes from line to line, and from matrix to matrix
    int lines, length;  // of each matrix, and the elements of a line

    // Whether 16 bytes lie within the array, gaps between its lines included.
    __device__ bool has(u64 at) const {
        return at >= (u64)begin && at + 16 <= (u64)begin + bytes;
    }
};

// The second matrix B, as a parameter.
#if TWO_B
#define UP_PARAMETER const __grid_constant__ MappedOperand up,
#else
#define UP_PARAMETER
#endif

template <bool UNALIGNED> struct OperandOf { typedef MappedOperand type; };
template <> struct OperandOf<true> { typedef UnalignedOperand type; };
template <bool UNALIGNED> using Operand = typename OperandOf<UNALIGNED>::type;

// Calls ``use(offset in the tile, x, y)`` for each TMA box that this block loads: the ``mine``th of
// PARTS of a tile of ``extent`` lines from ``first`` on (columns, if MN-major) and 64 of k. x and y
// are coordinates in the tensor map. An MN-major tile is boxes of COLUMNS columns; where their number
// is no multiple of PARTS, they are divided along k, so that each block loads as much.
template <bool K_MAJOR, int PARTS, int COLUMNS, class Use>
__device__ inline void each_box(int extent, int first, int k, int mine, Use use) {
    if constexpr (K_MAJOR) {
        int line = mine * (extent / PARTS);
        use(line * LINE_BYTES, k, first + line);
    } else {
        int boxes = extent / COLUMNS, divided = 1;
        while (boxes * divided % PARTS) divided *= 2;
        int lines = BLOCK_K / divided;
        for (int i = mine; i < boxes * divided; i += PARTS) {
            int column = i / divided * COLUMNS, line = i % divided * lines;
            use(2 * (column * BLOCK_K + line * COLUMNS), first + column, k + line);
        }
    }
}

// Loads the boxes to shared memory, of all ``blocks`` of the cluster.
template <bool K_MAJOR, int PARTS, int COLUMNS = 64>
__device__ inline void load_tile(u32 to, const MappedOperand& from, int extent, int first, int k,
                                 int matrix, int mine, u32 barrier, unsigned short blocks) {
    each_box<K_MAJOR, PARTS, COLUMNS>(extent, first, k, mine, [&](int at, int x, int y) {
        tma_load<(PARTS > 1)>(to + at, from.map, x, y, matrix, barrier, blocks);
    });
}
template <bool K_MAJOR, int PARTS, int COLUMNS = 64>
__device__ inline void load_tile(u32, const UnalignedOperand&, int, int, int, int, int, u32,
                                 unsigned short) {}

// Prefetches the boxes to the L2 cache.
template <bool K_MAJOR, int PARTS, int COLUMNS = 64>
__device__ inline void prefetch_tile_l2(const MappedOperand& from, int extent, int first, int k,
                                        int matrix, int mine) {
    each_box<K_MAJOR, PARTS, COLUMNS>(extent, first, k, mine, [&](int, int x, int y) {
        tma_prefetch_l2(from.map, x, y, matrix);
    });
}
template <bool K_MAJOR, int PARTS, int COLUMNS = 64>
__device__ inline void prefetch_tile_l2(const UnalignedOperand&, int, int, int, int, int) {}

// The operand's matrix number for a matrix of the batch.
__device__ inline int matrix_of(const MappedOperand& operand, int batch) {
    return min(batch, operand.batches - 1);
}
__device__ inline int matrix_of(const UnalignedOperand&, int batch) { return batch; }

__device__ inline void prefetch(const MappedOperand& operand) { prefetch_tensor_map(operand.map); }
__device__ inline void prefetch(const UnalignedOperand&) {}

// How 256 threads load tiles of EXTENT lines (columns, if MN-major) and 64 of k of an unaligned
// operand.
//
// 8 neighbouring threads take a row of the tile: 64 elements, which lie within two aligned 128-byte
// chunks. If K-major, the second chunk of a k-step is the first of the next: a step copies one
// chunk of each row, and the first step of a tile completes no k-step. If MN-major, a step copies
// all chunks of a k-step, and the first step copies none. A warp realigns only what it copied
// itself, so that it waits for no other warp; its rows are every eighth, and all have the same
// offset from 16-byte alignment.
//
// A step is only a few copies and funnel shifts of each thread, so the overhead around them counts: all
// that the steps of a tile share is computed once, by start_tile and finish_tile.
template <bool K_MAJOR, int EXTENT, bool UNALIGNED> struct Loader {
    static constexpr int CHUNKS = K_MAJOR ? 1 : EXTENT / 64;  // of 64 columns of the tile
    static constexpr int LINES = K_MAJOR ? EXTENT : 64, TURNS = (LINES + 31) / 32;
    static constexpr int PIECES = K_MAJOR ? 1 : CHUNKS + 1;   // 128-byte chunks of a line in a step
    static constexpr int PIECE_BYTES = LINES * LINE_BYTES;  // of all lines
    static constexpr int RAW_BYTES = PIECES * PIECE_BYTES;  // of a step

    // The tile that is being copied, for this thread's first line and the one 32 lines on. Its
    // other lines are 64 lines further each.
    u64 address[2];  // of this thread's 16 bytes in the step's first chunk
    int element[2];  // of the line, at ``address`` in the first step; negative before the line
    int lines;       // left in the matrix, from the thread's first line on
    u32 step;        // counted from the first of the ``whole`` ones
    u32 whole;       // steps that can be copied without bounds checks
    u32 missing;     // bit i: the line 32 i on is past the last, if K-major; bit 16: there is a step
                     // before the ``whole`` ones

    // The tile that is being realigned: where this thread's low and high 16 bytes of a line
    // are.
    u32 first[2], second[2];  // bytes from the beginning of a chunk
    u32 shape;  // by how much to realign: in bits 0-4, bits past a 4-byte word; in bits 5-6, words
                // past 16 bytes. Bits 8 + i and 10 + i: whether the low and the high 16 bytes are in
                // the line's second chunk

    static __device__ int line_of(int thread) { return thread / 32 + thread % 32 / 8 * 8; }
    static __device__ bool has(int line) { return LINES % 32 == 0 || line < LINES; }

    static __device__ u64 begin(const UnalignedOperand& from, int extent, int k, int batch, int line) {
        line += K_MAJOR ? extent : k;
        return (u64)from.begin + batch * from.step + line * from.pitch +
               2 * (u64)(K_MAJOR ? k : extent);
    }

    // Sets up the copies of the tile from ``extent`` and ``k`` on.
    __device__ void start_tile(const UnalignedOperand& from, int extent, int k, int batch, int thread) {
        int line = line_of(thread), top = K_MAJOR ? extent : k, left = K_MAJOR ? k : extent;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u64 at = begin(from, extent, k, batch, line + 32 * i);
            int ahead = at % 128;
            address[i] = at - ahead + 16 * (thread % 8);
            element[i] = left + 8 * (thread % 8) - ahead / 2;
        }
        lines = from.lines - top - line;
        missing = 0;
#pragma unroll
        for (int i = 0; i < TURNS; ++i) missing |= (K_MAJOR && 32 * i >= lines) << i;
        // Gaps between the array's first and last element may be read; they are not used.
        u64 first_line = begin(from, extent, k, batch, 0);
        bool is_ahead = (first_line & ~127ull) < (u64)from.begin;
        step = -(int)is_ahead;
        missing |= is_ahead << 16;
        int count = (K_MAJOR ? from.length - left : from.lines - top) / 64;
        if (!K_MAJOR) {
            u64 end = (u64)from.begin + from.bytes - LINE_BYTES * PIECES;
            while (count > 0 && first_line + (64 * count - 1) * from.pitch > end) --count;
        }
        whole = max(count - is_ahead, 0);
    }

    // Starts the copies of a step to ``raw``, a stage of the raw ring.
    __device__ void start(u32 raw, const UnalignedOperand& from, bool is_first, int thread) {
        if (!K_MAJOR && is_first) return;
        constexpr int LAST = TURNS - 1;
        int line = line_of(thread);
        raw += line * LINE_BYTES + 16 * (thread % 8);
        bool is_whole = step < whole;
        if (!is_whole &&
            !(from.has(address[0]) && from.has(source(from, LAST) + LINE_BYTES * (PIECES - 1)))) {
            start_any(raw, from, line);
        } else if (K_MAJOR && !is_whole) {
            start_counted(raw, from, line);
        } else {
            start_lines(raw, from, line, K_MAJOR || is_whole ? missing : past_the_last());
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) address[i] += K_MAJOR ? LINE_BYTES : BLOCK_K * from.pitch;
        ++step;
    }

    // The address of this thread's 16 bytes in the first chunk of a line.
    __device__ u64 source(const UnalignedOperand& from, int turn) const {
        return (turn % 2 ? address[1] : address[0]) + turn / 2 * 64 * from.pitch;
    }

    // The elements of k that the steps before this one cover.
    __device__ int present() const { return 64 * (int)(step + (missing >> 16)); }

    // Without bounds checks but for missing lines.
    __device__ void start_lines(u32 raw, const UnalignedOperand& from, int line, u32 missing) const {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            if (!has(line + 32 * turn)) continue;
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                cp_async_unless(raw + piece * PIECE_BYTES + 32 * turn * LINE_BYTES,
                           source(from, turn) + LINE_BYTES * piece, missing >> turn & 1);
            }
        }
    }

    // ``missing`` if MN-major: the lines are k, and the last k-step may have fewer.
    __device__ u32 past_the_last() const {
        u32 past = 0;
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) past |= (32 * turn + present() >= lines) << turn;
        return past;
    }

    // If K-major: elements past the end of k are zeros.
    __device__ void start_counted(u32 raw, const UnalignedOperand& from, int line) const {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            if (!has(line + 32 * turn)) continue;
            int left = max(from.length - present() - element[turn % 2], 0);
            cp_async_some(raw + 32 * turn * LINE_BYTES, source(from, turn),
                      missing >> turn & 1 ? 0 : 2 * min(left, 8));
        }
    }

    // With all checks: some of the 16 bytes may lie outside the array.
    __device__ void start_any(u32 raw, const UnalignedOperand& from, int line) const {
        int at = present();
#pragma unroll 1
        for (int turn = 0; turn < TURNS; ++turn) {
            if (!has(line + 32 * turn)) break;
            int left = (turn % 2 ? element[1] : element[0]) + (K_MAJOR ? at : 0);
            u64 piece_at = source(from, turn);
            bool is_there = 32 * turn + (K_MAJOR ? 0 : at) < lines;
            u32 to = raw + 32 * turn * LINE_BYTES;
#pragma unroll 1
            for (int piece = 0; piece < PIECES; ++piece) {
                int count = is_there && left > -8 ? min(max(from.length - left, 0), 8) : 0;
                if (count && !from.has(piece_at)) {
                    copy_halves(to, piece_at, from, count);
                } else {
                    cp_async_some(to, piece_at, 2 * count);
                }
                left += 64;
                piece_at += LINE_BYTES;
                to += PIECE_BYTES;
            }
        }
    }

    // Stores 16 bytes, of which the first ``count`` elements are read one by one, none outside
    // the array.
    static __device__ void copy_halves(u32 to, u64 source, const UnalignedOperand& from, int count) {
        u16 halves[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            u64 at = source + 2 * i;
            bool is_there = at >= (u64)from.begin && at < (u64)from.begin + from.bytes;
            halves[i] = i < count && is_there ? *(const u16*)at : (u16)0;
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) st_shared(to + 2 * i, halves[i]);
    }

    // Sets up the realignment of the tile from ``extent`` and ``k`` on.
    __device__ void finish_tile(const UnalignedOperand& from, int extent, int k, int batch,
                                int thread) {
        int line = line_of(thread);
        shape = 0;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int offset = begin(from, extent, k, batch, line + 32 * i) % 128;
            int at = offset / 16 + thread % 8;
            first[i] = line * LINE_BYTES + 16 * (at % 8);
            second[i] = line * LINE_BYTES + 16 * ((at + 1) % 8);
            shape |= (at >= 8) << (8 + i) | (at + 1 >= 8) << (10 + i);
            shape |= 8 * (offset & 2) | offset % 16 / 4 << 5;
        }
    }

    // Realigns a k-step's tile from the raw ring (``before`` and ``raw``: the previous step's
    // stage and this one's) to ``to``, a stage of the main ring.
    __device__ void finish(u32 before, u32 raw, u32 to, int thread) const {
        if (!K_MAJOR) before = raw, raw += PIECE_BYTES;
        u32 low[2], high[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            low[i] = first[i] + (shape >> (8 + i) & 1 ? raw : before);
            high[i] = second[i] + (shape >> (10 + i) & 1 ? raw : before);
        }
        int line = line_of(thread);
        to += line * LINE_BYTES + 16 * (thread % 8 ^ line % 8);
        switch (shape >> 5 & 3) {
            case 0: join<0>(low, high, to, line); break;
            case 1: join<1>(low, high, to, line); break;
            case 2: join<2>(low, high, to, line); break;
            default: join<3>(low, high, to, line);
        }
    }

    // Realigns pairs of 16 bytes, by WORDS words and the bits of ``shape``.
    template <int WORDS>
    __device__ void join(const u32 (&low)[2], const u32 (&high)[2], u32 to, int line) const {
        constexpr int ALL = TURNS * CHUNKS, AT_ONCE = ALL % 4 == 0 ? 4 : ALL % 3 == 0 ? 3 : 2;
#pragma unroll
        for (int turn = 0; turn < ALL; turn += AT_ONCE) {
            uint4 x[AT_ONCE], y[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                int t = (turn + i) % TURNS, at = (turn + i) / TURNS * PIECE_BYTES;
                if (turn + i >= ALL || !has(line + 32 * t)) continue;
                x[i] = ld_shared_v4_u32(low[t % 2] + at + 32 * t * LINE_BYTES);
                y[i] = ld_shared_v4_u32(high[t % 2] + at + 32 * t * LINE_BYTES);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                if (turn + i >= ALL || !has(line + 32 * ((turn + i) % TURNS))) continue;
                u32 from[] = {x[i].x, x[i].y, x[i].z, x[i].w, y[i].x, y[i].y, y[i].z, y[i].w};
                u32 z[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    z[j] = __funnelshift_r(from[WORDS + j], from[WORDS + j + 1], shape);
                }
                st_shared(to + 32 * (turn + i) * LINE_BYTES, uint4{z[0], z[1], z[2], z[3]});
            }
        }
    }
};

template <bool K_MAJOR, int EXTENT> struct Loader<K_MAJOR, EXTENT, false> {
    static constexpr int RAW_BYTES = 0;
    __device__ void start_tile(const MappedOperand&, int, int, int, int) {}
    __device__ void start(u32, const MappedOperand&, bool, int) {}
    __device__ void finish_tile(const MappedOperand&, int, int, int, int) {}
    __device__ void finish(u32, u32, u32, int) const {}
};
