// Tiles of 16-bit elements in shared memory for mma.sync: filled by cp.async, swizzled, read by ldmatrix
// (compute capability 8.0).
//
// A tile lies in shared memory as its matrix does in global memory: as rows of k of each line where the
// matrix is K-major, or as rows of lines for each k where it is MN-major.
//
// Macros: THREADS, of a block, and BLOCK_K are constants defined before this header.
#pragma once
#include "../ptx/cp_async.cuh"
#include "../ptx/memory.cuh"
#include "../ptx/shared.cuh"

constexpr int CHUNK = 8;  // elements of 16 bytes, what one lane's address stands for in ldmatrix

// A as its rows, or B as its columns: lines of k elements. ``pitch``, in elements, leads from line to
// line (K-major), or from k to k (MN-major).
struct Lines {
    const u16* pointer;
    long long pitch;
    unsigned count;
};

// The byte of a tile at which element (y, x) lies, of rows of ROW elements. Which of a row's chunks
// lies where changes from row to row (XOR), so that the same chunks of any eight rows lie in all 32 banks.
template <int ROW> __device__ constexpr unsigned swizzled(unsigned y, unsigned x) {
    constexpr unsigned CHUNKS = ROW / CHUNK;
    constexpr unsigned TOGETHER = CHUNKS < 8 ? 8 / CHUNKS : 1;  // rows in 128 bytes
    return 2 * (y * ROW + (x / CHUNK ^ y / TOGETHER % (8 / TOGETHER)) * CHUNK + x % CHUNK);
}

// COUNT lines at BLOCK_K of k.
template <int COUNT, bool K_MAJOR> struct Tile {
    static constexpr int ROW = K_MAJOR ? BLOCK_K : COUNT, ROWS = K_MAJOR ? COUNT : BLOCK_K;
    static constexpr int BYTES = 2 * COUNT * BLOCK_K;
    static_assert(ROW % 64 == 0 || 64 % ROW == 0 && ROW >= 16, "XOR stays within a row");

    // Where the lane's row of its first ldmatrix begins, of four 8 x 8 matrices at 16 lines from ``line``
    // on and 16 of k. The second of the four is 8 lines further on if BY_LINES, else 8 of k.
    template <bool BY_LINES> static __device__ unsigned first(unsigned line) {
        const unsigned lane = threadIdx.x % 32;
        const unsigned second = lane / 8 % 2 * 8, third = lane / 16 * 8, row = lane % 8;
        const unsigned lines = BY_LINES ? second : third, of_k = BY_LINES ? third : second;
        return K_MAJOR ? swizzled<ROW>(line + lines + row, of_k) : swizzled<ROW>(of_k + row, line + lines);
    }
    // The same at 16 * ``step`` of k, and 16 * ``i`` lines further on. A multiple of 16 rows keeps the
    // swizzle, and within a row the bits of the position don't overlap those of ``first``.
    static __device__ unsigned next(unsigned first, int step, int i) {
        const int y = K_MAJOR ? i : step, x = K_MAJOR ? step : i;
        return (first ^ x * 32) + y * 16 * ROW * 2;
    }
};

// Copies the tiles of one k-step after another, WIDTH elements at a time: by cp.async, of which a thread
// has up to 16 bytes, or where single elements are aligned to no more by the thread itself.
// What lies past the last line or past the end of k becomes zeros. IS_PARTIAL is whether one copy may be
// of elements some of which lie there: that takes more instructions.
template <typename Tile, bool K_MAJOR, int WIDTH, bool IS_PARTIAL, bool IS_UNALIGNED = false> struct Copier {
    static constexpr int ACROSS = Tile::ROW / WIDTH < THREADS ? Tile::ROW / WIDTH : THREADS;
    static constexpr int WIDE = Tile::ROW / WIDTH / ACROSS;  // copies of a thread in a row
    static constexpr int DOWN = THREADS / ACROSS;            // rows that are copied at once
    static constexpr bool IS_IDLE = Tile::ROWS < DOWN;       // of some threads
    static_assert(THREADS % ACROSS == 0 && (Tile::ROWS % DOWN == 0 || IS_IDLE));
    const u16* from;
    long long pitch;
    unsigned x, y;      // the thread's first element in the tile
    int rows, columns;  // that are left from there on

    __device__ Copier(const Lines& of, unsigned line, unsigned begin, unsigned end, unsigned = 0)
        : pitch(of.pitch) {
        x = threadIdx.x % ACROSS * WIDTH, y = threadIdx.x / ACROSS;
        const unsigned row = K_MAJOR ? line : begin, column = K_MAJOR ? begin : line;
        from = of.pointer + (size_t)(row + y) * pitch + column + x;
        rows = (K_MAJOR ? (int)(of.count - line) : (int)(end - begin)) - (int)y;
        columns = (K_MAJOR ? (int)(end - begin) : (int)(of.count - line)) - (int)x;
        if (IS_IDLE && y >= Tile::ROWS) rows = 0;
    }
    // To the tile at ``to`` in shared memory.
    __device__ void copy(u32 to, bool = false) {
        if (!IS_IDLE || y < Tile::ROWS) {
            #pragma unroll
            for (int j = 0; j < WIDE; ++j) {
                const int left = columns - j * ACROSS * WIDTH;
                #pragma unroll
                for (int i = 0; i < Tile::ROWS; i += DOWN) {
                    // Rows that are a multiple of 8 apart are swizzled alike.
                    const u32 at = DOWN % 8 ? to + swizzled<Tile::ROW>(y + i, x + j * ACROSS * WIDTH)
                        : to + swizzled<Tile::ROW>(y, x + j * ACROSS * WIDTH) + i * Tile::ROW * 2;
                    const u16* source = from + i * pitch + j * ACROSS * WIDTH;
                    const bool is_inside = i < rows && left > 0;
                    if constexpr (WIDTH == 1) st_shared(at, is_inside ? *source : (u16)0);
                    else if constexpr (IS_PARTIAL)
                        cp_async_some<2 * WIDTH>(at, (u64)source, is_inside ? 2 * min(left, WIDTH) : 0);
                    else cp_async_unless<2 * WIDTH>(at, (u64)source, !is_inside);
                }
            }
        }
        from += K_MAJOR ? BLOCK_K : BLOCK_K * pitch;
        (K_MAJOR ? columns : rows) -= BLOCK_K;
    }
    __device__ void realign(u32) const {}
};
