// A phase's tiles of A and B: how they get from global memory to where wgmma reads them.
//
// A bulk copy needs lines (rows, or columns, whichever are contiguous) that begin at multiples of 16
// bytes. Where they do, it writes a tile as wgmma takes it. Where they don't (A_SHIFTED, B_SHIFTED),
// threads copy the lines to shared memory as they lie, by whole 128 aligned bytes, as anything else
// costs the L2 cache a request more; and from there, shifted, to where wgmma reads.

constexpr int LINE_BYTES = 2 * BLOCK_K;  // a row of a tile in shared memory

// A or B.
template <bool SHIFTED> struct Operand {
    TensorMap map;
    int batches;  // 1 where all share one matrix
};
template <> struct Operand<true> {
    const char* begin;
    u64 pitch, step;  // bytes from line to line, and from matrix to matrix
    int lines, length;  // of each matrix, and the elements of a line
};

// This block's part, which is the ``mine``th of ``PARTS``, of a tile of ``EXTENT`` lines (or columns,
// where k is not contiguous) from ``first`` on, and 64 of k. A part goes to all ``blocks``.
template <bool BY_K, int EXTENT, int PARTS, bool SHIFTED>
__device__ inline void load_tile(u32 to, const Operand<SHIFTED>& from, int first, int k, int batch,
                                 int mine, u32 barrier, unsigned short blocks) {
    if constexpr (!SHIFTED) {
        constexpr int EACH = BY_K ? EXTENT / PARTS : 64;
        batch = min(batch, from.batches - 1);
        for (int i = mine * EACH; i < EXTENT; i += PARTS * EACH) {
            tma_load<(PARTS > 1)>(to + i * LINE_BYTES, from.map, BY_K ? k : first + i,
                                  BY_K ? first + i : k, batch, barrier, blocks);
        }
    }
}

template <bool SHIFTED> __device__ inline void prefetch(const Operand<SHIFTED>& operand) {
    if constexpr (!SHIFTED) tma_prefetch(operand.map);
}

// How the 256 threads of the loaders bring tiles of EXTENT lines (or columns) and 64 of k.
//
// 8 neighbouring threads have a row of the tile, 64 elements, which lie within two pieces of 128
// aligned bytes. Where k is contiguous, the second one of a phase is the next one's first: a step
// copies one piece of each row, and the first step of a tile has no phase to finish. Where it is not,
// a step copies all pieces of a phase, and the first copies none. A warp reads what it copied itself,
// so it waits for no other, and its rows are every eighth, which all begin equally far behind 16 whole
// bytes.
template <bool BY_K, int EXTENT, bool SHIFTED> struct Loader {
    static constexpr int CHUNKS = BY_K ? 1 : EXTENT / 64;  // of 64 columns
    static constexpr int LINES = BY_K ? EXTENT : 64, TURNS = (LINES + 31) / 32;
    static constexpr int PIECES = BY_K ? 1 : CHUNKS + 1;   // of a line in a step
    static constexpr int PIECE_BYTES = LINES * LINE_BYTES;  // of all lines
    static constexpr int RAW_BYTES = PIECES * PIECE_BYTES;  // of a step
    static constexpr int LAST_LINES = 8;  // of which 16 bytes from an element on may be past the last

    // Of this thread's first line and the one 32 lines on; the next ones are 64 lines on each.
    u64 address[2];  // of its 16 bytes of the step's first piece
    int element[2];  // which of the line's they begin with; below 0, before the line
    int lines;       // of the matrix, from the first line on
    int top, left;   // the first line and element of the step's pieces, of all threads
    bool is_front;   // whether they begin ahead of the first matrix, in what is not ours to read
    u32 offset[2];   // of the tile that is finished: bytes from the first piece's beginning

    static __device__ int line_of(int thread) { return thread / 32 + thread % 32 / 8 * 8; }
    static __device__ bool has(int line) { return LINES % 32 == 0 || line < LINES; }

    static __device__ u64 begin(const Operand<true>& from, int extent, int k, int batch, int line) {
        line += BY_K ? extent : k;
        return (u64)from.begin + batch * from.step + line * from.pitch +
               2 * (u64)(BY_K ? k : extent);
    }

    // Turns to copying a tile from ``extent`` and ``k`` on.
    __device__ void turn_to(const Operand<true>& from, int extent, int k, int batch, int thread) {
        int line = line_of(thread), first = line + (BY_K ? extent : k);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u64 at = begin(from, extent, k, batch, line + 32 * i);
            int ahead = at % 128;
            address[i] = at - ahead + 16 * (thread % 8);
            element[i] = (BY_K ? k : extent) + 8 * (thread % 8) - ahead / 2;
        }
        lines = from.lines - first;
        top = BY_K ? extent : k;
        left = (BY_K ? k : extent) - 64;  // they begin up to 63 elements before the tile
        is_front = address[0] < (u64)from.begin;
    }

    // Starts a step's copies to ``raw``.
    __device__ void start(u32 raw, const Operand<true>& from, bool is_first, int thread) {
        if (!BY_K && is_first) return;
        int line = line_of(thread);
        raw += line * LINE_BYTES + 16 * (thread % 8);
        if (left >= 0 && left + 64 + 64 * PIECES <= from.length && top + LINES <= from.lines) {
            start_whole(raw, from, line);
        } else {
            start_any(raw, from, line);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            address[i] += BY_K ? LINE_BYTES : BLOCK_K * from.pitch;
            element[i] += BY_K ? BLOCK_K : 0;
        }
        left += BY_K ? BLOCK_K : 0;
        top += BY_K ? 0 : BLOCK_K;
        lines -= BY_K ? 0 : BLOCK_K;
        is_front = false;
    }

    // The same where all lines have all elements.
    __device__ void start_whole(u32 raw, const Operand<true>& from, int line) const {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            if (!has(line + 32 * turn)) continue;
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                copy_piece(raw + piece * PIECE_BYTES + 32 * turn * LINE_BYTES,
                           address[turn % 2] + turn / 2 * 64 * from.pitch + LINE_BYTES * piece);
            }
        }
    }

    __device__ void start_any(u32 raw, const Operand<true>& from, int line) const {
        u32 late = 0;  // which are copied by elements, as not all of the 16 bytes may be ours to read
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
            if (!has(line + 32 * turn)) continue;
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                int at = element[turn % 2] + 64 * piece, count = count_of(from, turn, at);
                bool is_ahead = turn == 0 && piece == 0 && is_front && at < 0 && count;
                bool is_end = 32 * turn > lines - LAST_LINES && count && count < 8;
                if (is_ahead || is_end) {
                    late |= 1 << (turn * PIECES + piece);
                } else {
                    copy_piece(raw + piece * PIECE_BYTES + 32 * turn * LINE_BYTES,
                               address[turn % 2] + turn / 2 * 64 * from.pitch + LINE_BYTES * piece,
                               2 * count);
                }
            }
        }
        for (; late; late &= late - 1) {
            int which = __ffs(late) - 1, turn = which / PIECES, piece = which % PIECES;
            int at = (turn % 2 ? element[1] : element[0]) + 64 * piece;
            copy_halves(raw + piece * PIECE_BYTES + 32 * turn * LINE_BYTES,
                        (turn % 2 ? address[1] : address[0]) + turn / 2 * 64 * from.pitch +
                            LINE_BYTES * piece,
                        -at, count_of(from, turn, at));
        }
    }

    // How many of the 8 elements from number ``at`` on of a turn's line there are; some of the first
    // may be before it.
    __device__ int count_of(const Operand<true>& from, int turn, int at) const {
        return at > -8 && 32 * turn < lines ? min(max(from.length - at, 0), 8) : 0;
    }

    // 16 bytes, of which only the elements from ``first`` up to ``end`` are read.
    static __device__ void copy_halves(u32 to, u64 source, int first, int end) {
        u16 halves[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            halves[i] = i >= first && i < end ? ((const u16*)source)[i] : (u16)0;
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) shared_store(to + 2 * i, halves[i]);
    }

    // Turns to finishing a tile from ``extent`` and ``k`` on.
    __device__ void finish_next(const Operand<true>& from, int extent, int k, int batch,
                                int thread) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            offset[i] = begin(from, extent, k, batch, line_of(thread) + 32 * i) % 128;
        }
    }

    // Brings a tile to where wgmma reads it, from what this step copied and the one before.
    __device__ void finish(u32 before, u32 raw, u32 to, int thread) const {
        if (!BY_K) before = raw, raw += PIECE_BYTES;
        u32 low[2], high[2];
        u32 line = line_of(thread), place = thread % 8;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u32 at = offset[i] / 16 + place;
            low[i] = (at < 8 ? before : raw) + 16 * (at % 8) + line * LINE_BYTES;
            ++at;
            high[i] = (at < 8 ? before : raw) + 16 * (at % 8) + line * LINE_BYTES;
        }
        to += line * LINE_BYTES + 16 * (place ^ line % 8);
        u32 shift = offset[0] % 16;
        switch (shift / 4) {
            case 0: join<0>(low, high, to, line, shift); break;
            case 1: join<1>(low, high, to, line, shift); break;
            case 2: join<2>(low, high, to, line, shift); break;
            default: join<3>(low, high, to, line, shift);
        }
    }

    // Twice 16 bytes to those that begin ``shift`` bytes, of which WORDS are whole words, further.
    template <int WORDS>
    static __device__ void join(const u32 (&low)[2], const u32 (&high)[2], u32 to, int line,
                                u32 shift) {
        constexpr int ALL = TURNS * CHUNKS, AT_ONCE = ALL % 4 == 0 ? 4 : ALL % 3 == 0 ? 3 : 2;
#pragma unroll
        for (int turn = 0; turn < ALL; turn += AT_ONCE) {
            uint4 x[AT_ONCE], y[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                int t = (turn + i) % TURNS, at = (turn + i) / TURNS * PIECE_BYTES;
                if (turn + i >= ALL || !has(line + 32 * t)) continue;
                x[i] = shared_word(low[t % 2] + at + 32 * t * LINE_BYTES);
                y[i] = shared_word(high[t % 2] + at + 32 * t * LINE_BYTES);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                if (turn + i >= ALL || !has(line + 32 * ((turn + i) % TURNS))) continue;
                u32 words[] = {x[i].x, x[i].y, x[i].z, x[i].w, y[i].x, y[i].y, y[i].z, y[i].w};
                u32 z[4];
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    z[j] = __funnelshift_r(words[WORDS + j], words[WORDS + j + 1], 8 * (shift & 2));
                }
                shared_store(to + 32 * (turn + i) * LINE_BYTES, uint4{z[0], z[1], z[2], z[3]});
            }
        }
    }
};

template <bool BY_K, int EXTENT> struct Loader<BY_K, EXTENT, false> {
    static constexpr int RAW_BYTES = 0;
    __device__ void turn_to(const Operand<false>&, int, int, int, int) {}
    __device__ void start(u32, const Operand<false>&, bool, int) {}
    __device__ void finish_next(const Operand<false>&, int, int, int, int) {}
    __device__ void finish(u32, u32, u32, int) const {}
};
