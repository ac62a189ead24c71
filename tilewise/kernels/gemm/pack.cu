// Repacks one or two batches of matrices of 16-bit elements so that TMA can read them: rows
// contiguous and 16-byte aligned, whatever the source's strides and address.
//
// A thread writes 16-byte pieces, one below the other. Where the source's rows are contiguous too,
// a piece comes from the one or two aligned 16 bytes that hold it, realigned in registers: memory
// sees whole 16-byte loads, and L1 serves those that two pieces share. Any other source, and a
// piece at either end of its memory, is read element by element.
//
// Macro: OVERLAP as in launch.cuh.

#include "../ptx/grid.cuh"
#include "../ptx/memory.cuh"
#include "unaligned.cuh"

constexpr int WIDTH = 8;      // elements of a piece
constexpr int THREADS = 256;  // of a block
constexpr int PIECES = 2;     // of a thread, in flight at once

struct Copy {
    const unsigned short* source;
    unsigned short* destination;
    long long row_stride, column_stride, batch_stride;  // of the source, elements
    int pitch;      // of the destination, where the matrices follow one another: elements
    int rows, columns, batch;
    int blocks;     // that make this copy
    int lane_bits;  // 2^lane_bits neighbouring threads take neighbouring pieces of a row
};

struct Copies {
    Copy copy[2];
};

struct Piece {
    const unsigned short* source;
    int columns;  // 0 past the last row or column
    int shift;    // bytes from the aligned word in which it begins
    int words;    // to read; 0 where it is read by elements
    uint4 low, high;
};

__device__ inline void load_words(Piece& piece) {
    const uint4* word = (const uint4*)((const char*)piece.source - piece.shift);
    if (piece.words > 0) piece.low = word[0];
    if (piece.words > 1) piece.high = word[1];
}

__device__ inline uint4 by_elements(const Piece& piece, long long column_stride) {
    unsigned words[WIDTH / 2] = {};
    #pragma unroll
    for (int i = 0; i < WIDTH; ++i)
        if (i < piece.columns)
            words[i / 2] |= (unsigned)piece.source[i * column_stride] << 16 * (i % 2);
    return uint4{words[0], words[1], words[2], words[3]};
}

extern "C" __global__ void __launch_bounds__(THREADS) pack(const __grid_constant__ Copies copies) {
    const bool is_second = blockIdx.x >= copies.copy[0].blocks;
    const Copy& copy = copies.copy[is_second];
    const unsigned block = blockIdx.x - (is_second ? copies.copy[0].blocks : 0);
    const int lanes = 1 << copy.lane_bits, lines = THREADS >> copy.lane_bits;
    const unsigned across = (copy.columns + WIDTH * lanes - 1) / WIDTH >> copy.lane_bits;  // blocks
    const unsigned down = block / across;
    const int column = WIDTH * ((block - down * across) * lanes + (threadIdx.x & lanes - 1));
    const int top = down * PIECES * lines + (threadIdx.x >> copy.lane_bits);
    const int columns = max(0, min(WIDTH, copy.columns - column));
    // Aligned 16 bytes that reach beyond the source's first or last element may be another's
    // memory.
    const char* begin = (const char*)copy.source;
    const char* end = (const char*)(copy.source + (copy.batch - 1) * copy.batch_stride
        + (copy.rows - 1) * copy.row_stride + copy.columns);

    Piece pieces[PIECES] = {};
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        Piece& piece = pieces[i];
        const int row = top + i * lines;
        const int matrix = copy.batch == 1 ? 0 : (unsigned)row / copy.rows;
        piece.source = copy.source + matrix * copy.batch_stride
            + (row - matrix * copy.rows) * copy.row_stride + column * copy.column_stride;
        piece.columns = row < copy.batch * copy.rows ? columns : 0;
        piece.shift = (unsigned long long)piece.source % sizeof(uint4);
        const char* word = (const char*)piece.source - piece.shift;
        const int words = piece.shift + 2 * columns > sizeof(uint4) ? 2 : 1;
        const bool is_wide = copy.column_stride == 1 && piece.columns && word >= begin
            && word + words * sizeof(uint4) <= end;
        piece.words = is_wide ? words : 0;
    }
#if OVERLAP
    griddepcontrol_launch_dependents();
    #pragma unroll
    for (int i = 0; i < PIECES; ++i)  // while the kernels ahead end
        if (pieces[i].words) prefetch_l2((const char*)pieces[i].source - pieces[i].shift);
    griddepcontrol_wait();
#endif
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) load_words(pieces[i]);
    #pragma unroll
    for (int i = 0; i < PIECES; ++i) {
        const Piece& piece = pieces[i];
        const uint4 value = piece.words ? realigned(piece.low, piece.high, piece.shift) : by_elements(piece, copy.column_stride);
        const long long row = top + i * lines;
        if (piece.columns) *(uint4*)(copy.destination + row * copy.pitch + column) = value;
    }
}
