// Tiles for mma.sync of matrices whose rows are not 16-byte aligned: cp.async copies aligned 16-byte pieces of
// memory, which are realigned in shared memory (compute capability 8.0).
//
// cp.async and ldmatrix take 16 bytes only where they are 16-byte aligned. So the aligned pieces of memory that
// hold a row of a tile are copied to the row's place in shared memory; they are one more than the row has. When
// they have arrived, each piece of the row is made from the two pieces that hold its elements. The lanes that
// copy and realign a row are in one warp, so no barrier of the block is needed.
//
// Macros: those of mma_tiles.cuh.
#pragma once
#include "mma_tiles.cuh"
#include "unaligned.cuh"

template <typename Tile, bool K_MAJOR, int WIDTH, bool IS_PARTIAL>
struct Copier<Tile, K_MAJOR, WIDTH, IS_PARTIAL, true> {
    static constexpr int ACROSS = Tile::ROW / CHUNK;  // pieces of a row, and the lanes that copy them
    static constexpr int DOWN = THREADS / ACROSS;     // rows that are copied at once
    static constexpr int TIMES = Tile::ROWS / DOWN;   // pieces of a thread
    // Pieces that a thread realigns at once: one, if the accumulators leave few registers.
    static constexpr int AT_ONCE = WARP_M * WARP_N > 16 * 32 ? 1 : TIMES;
    static constexpr int STEP = DOWN * Tile::ROW * 2; // bytes from a thread's piece to its next one
    static_assert(ACROSS <= 32 && THREADS % ACROSS == 0 && Tile::ROWS % DOWN == 0);
    static_assert(DOWN % 8 == 0 && BLOCK_K % 8 == 0, "a thread's pieces all have the same shift");
    const u16* begin;  // of the matrix: nothing before it may be read
    const u16* from;   // the thread's first piece
    long long pitch;
    unsigned shift;      // bytes from ``from`` to the first element of the row's piece
    int rows, elements;  // rows of the matrix left from ``from`` on, and elements of a row
    bool is_last;        // the piece is a row's last: the thread copies the piece after it, too
    unsigned own, next, next_step;  // bytes from the tile to the piece, and to the one after it

    // ``extras``, in bytes from the tile, is where the additional pieces of the rows lie. Each uses the banks of
    // the first piece of its row: the two are never read at the same time.
    __device__ Copier(const Lines& of, unsigned line, unsigned first, unsigned end, unsigned extras)
        : begin(of.pointer), pitch(of.pitch) {
        const unsigned x = threadIdx.x % ACROSS * CHUNK, y = threadIdx.x / ACROSS;
        const unsigned row = K_MAJOR ? line : first, column = K_MAJOR ? first : line;
        const u16* element = of.pointer + (size_t)(row + y) * pitch + column + x;
        shift = (size_t)element % 16;
        from = element - shift / 2;
        rows = (K_MAJOR ? (int)(of.count - line) : (int)(end - first)) - (int)y;
        elements = (K_MAJOR ? (int)(end - first) : (int)(of.count - line)) - (int)x + (int)shift / 2;
        is_last = x == Tile::ROW - CHUNK;
        own = swizzled<Tile::ROW>(y, x);
        next = is_last ? extras + y / 8 * 128 + swizzled<Tile::ROW>(y, 0) % 128
                       : swizzled<Tile::ROW>(y, x + CHUNK);
        next_step = is_last ? DOWN * 16 : STEP;
    }
    // Copies the next k-step to the tile at ``to`` in shared memory. Past the end of a row the tile has zeros.
    // ``is_first`` is for the first k-step, in which a piece may begin before the matrix does.
    __device__ void copy(u32 to, bool is_first) {
        auto bytes_from = [&](int at, bool is_inside) {
            return is_inside ? max(0, min(2 * (elements - at), 16)) : 0;
        };
        #pragma unroll
        for (int i = 0; i < TIMES; ++i) {
            const u16* piece = from + i * DOWN * pitch;
            const u32 at = to + own + i * STEP;
            const bool is_inside = i * DOWN < rows;
            if (is_first && piece < begin)
                #pragma unroll 1
                for (int j = 0; j < CHUNK; ++j)
                    st_shared(at + 2 * j, is_inside && piece + j >= begin && j < elements ? piece[j] : (u16)0);
            else cp_async_some(at, (u64)piece, bytes_from(0, is_inside));
            if (is_last) cp_async_some(to + next + i * next_step, (u64)(piece + CHUNK), bytes_from(CHUNK, is_inside));
        }
        from += K_MAJOR ? BLOCK_K : BLOCK_K * pitch;
        (K_MAJOR ? elements : rows) -= BLOCK_K;
    }
    // Realigns a tile after this thread has waited for its own copies.
    __device__ void realign(u32 tile) const {
        __syncwarp();  // the other lanes have waited for theirs, too
        #pragma unroll
        for (int i = 0; i < TIMES; i += AT_ONCE) {
            uint4 first[AT_ONCE], second[AT_ONCE];
            #pragma unroll
            for (int j = 0; j < AT_ONCE; ++j) {
                first[j] = ld_shared_v4_u32(tile + own + (i + j) * STEP);
                second[j] = ld_shared_v4_u32(tile + next + (i + j) * next_step);
            }
            __syncwarp();
            #pragma unroll
            for (int j = 0; j < AT_ONCE; ++j)
                st_shared(tile + own + (i + j) * STEP, realigned(first[j], second[j], shift));
        }
    }
};
