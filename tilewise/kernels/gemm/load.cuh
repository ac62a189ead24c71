// A phase's tiles of A and B: how they get from global memory to where wgmma reads them.
//
// A bulk copy needs lines (rows, or columns, whichever are contiguous) that begin at multiples of 16
// bytes. Where they do, it writes a tile as wgmma takes it. Where they don't (A_SHIFTED, B_SHIFTED),
// every eighth line still begins equally far behind such a multiple: 8 tensor maps each have every
// eighth line, from the multiple of 16 bytes before its beginning on. Bulk copies bring their pieces
// to shared memory as they lie, 16 bytes wider than they need be, and threads shift them from there
// to where wgmma reads.

constexpr int LINE_BYTES = 2 * BLOCK_K;            // of a tile
constexpr int RAW_LINE_BYTES = 2 * (BLOCK_K + 8);  // as it lies

// A or B; SHIFTED is whether tiles have to be shifted.
template <bool SHIFTED> struct Operand {
    static constexpr int MAPS = SHIFTED ? 8 : 1;
    TensorMap maps[MAPS];
    int offset, step;  // line l begins (offset + step * l) % 8 elements behind 16 whole bytes
    int batches;       // 1 where all share one matrix
    int lines;         // of each batch, where all are read as one high matrix; else 0
};

template <bool SHIFTED> __device__ inline void prefetch(const Operand<SHIFTED>& operand) {
#pragma unroll
    for (int i = 0; i < operand.MAPS; ++i) tma_prefetch(operand.maps[i]);
}

// This block's part, which is the ``mine``th of ``PARTS``, of a tile of ``EXTENT`` lines (or columns,
// where k is not contiguous) from ``first`` on, and 64 of k. A part goes to all ``blocks``.
template <bool BY_K, int EXTENT, int PARTS, bool SHIFTED>
__device__ inline void load_tile(u32 to, const Operand<SHIFTED>& from, int first, int k, int batch,
                                 int mine, u32 barrier, unsigned short blocks) {
    constexpr int EACH = BY_K ? EXTENT / PARTS : 64;
    batch = min(batch, from.batches - 1);
    for (int i = mine * EACH; i < EXTENT; i += PARTS * EACH) {
        tma_load<(PARTS > 1)>(to + i * LINE_BYTES, from.maps[0], BY_K ? k : first + i,
                              BY_K ? first + i : k, batch, barrier, blocks);
    }
}

// A tile as it lies: by 64 columns, where k is not contiguous, and in each the lines of the first of
// 8 maps, then those of the next.
template <bool BY_K, int EXTENT, bool SHIFTED> struct Raw {
    typedef Operand<SHIFTED> From;
    static constexpr int LINES = BY_K ? EXTENT : 64;
    static constexpr int EACH = LINES / 8;  // of one copy
    static constexpr int COPY_BYTES = (EACH * RAW_LINE_BYTES + 127) / 128 * 128;
    static constexpr int COPIES = BY_K ? 8 : EXTENT / 8;
    static constexpr int BYTES = COPIES * COPY_BYTES;  // of shared memory
    static constexpr int COPIED = COPIES * EACH * RAW_LINE_BYTES;

    // The number of the tile's first line among those that the maps share out, and, in ``batch``,
    // the matrix that it is in.
    static __device__ int first_line(const From& from, int first, int k, int& batch) {
        batch = min(batch, from.batches - 1);
        int line = (BY_K ? first : k) + batch * from.lines;
        if (from.lines) batch = 0;
        return line;
    }

    // The ``mine``th of ``PARTS`` parts of it, in shared memory as it lies.
    template <int PARTS>
    static __device__ void load(u32 to, const From& from, int first, int k, int batch, int mine,
                                u32 barrier) {
        unsigned line = first_line(from, first, k, batch);
        for (int i = mine; i < COPIES; i += PARTS) {
            unsigned at = line + i % 8;
            tma_load<false>(to + i * COPY_BYTES, from.maps[at % From::MAPS],
                            BY_K ? k : first + i / 8 * 64, at / 8, batch, barrier, 0);
        }
    }

    // By a warpgroup, of which this is number ``thread``, from there to where load_tile would have
    // brought it: 16 bytes a thread and turn.
    static __device__ void shift(u32 raw, u32 to, const From& from, int k, int end_of_k, int batch,
                                 int thread) {
        constexpr int TURNS = (EXTENT + 15) / 16, AT_ONCE = CONSUMERS == 1 ? 4 : 2;
        // Past the end of k there may be another batch's lines.
        int first = first_line(from, 0, k, batch), lines = BY_K ? LINES : end_of_k - k;
        unsigned piece = thread % 8;
#pragma unroll
        for (int turn = 0; turn < TURNS; turn += AT_ONCE) {
            uint4 low[AT_ONCE], high[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                unsigned copied = 16 * (turn + i) + thread / 8;
                if (turn + i >= TURNS || copied >= EXTENT) continue;
                u32 at = raw + copied / EACH * COPY_BYTES + copied % EACH * RAW_LINE_BYTES;
                low[i] = shared_word(at + 16 * piece);
                high[i] = shared_word(at + 16 * piece + 16);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                unsigned copied = 16 * (turn + i) + thread / 8;
                if (turn + i >= TURNS || copied >= EXTENT) continue;
                unsigned copy = copied / EACH, line = copied % EACH * 8 + copy % 8;
                uint4 x = joined(low[i], high[i],
                                 2 * ((from.offset + from.step * (first + copy)) % 8));
                if ((int)line >= lines) x = uint4{0, 0, 0, 0};
                line += copy / 8 * 64;
                shared_store(to + line * LINE_BYTES + 16 * (piece ^ line % 8), x);
            }
        }
    }
};
