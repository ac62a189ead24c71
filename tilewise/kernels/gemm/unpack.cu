// Undoes pack.cu: copies a batch of matrices of 16-bit elements, whose rows are 16-byte aligned, to
// where they have any strides. A thread writes aligned 16 bytes, which come from the one or two
// aligned 16 bytes of the source that hold them, realigned in registers. What a row has at its
// ends, in 16 bytes that it may share with its neighbours, is written element by element, and so is
// all of a destination whose rows are not contiguous.
//
// Macro: OVERLAP as in launch.cuh.

#include "../ptx/types.cuh"
#include "launch.cuh"
#include "unaligned.cuh"

constexpr int WIDTH = 8;      // elements of a word
constexpr int THREADS = 256;  // of a block

struct Copy {
    const u16* source;
    u16* destination;
    long long row_stride, column_stride, batch_stride;  // of the destination: elements
    int pitch;      // of the source, where the matrices follow one another: elements
    int rows, columns, batch;
    int lane_bits;  // 2^lane_bits neighbouring threads write neighbouring words of a row
};

extern "C" __global__ void __launch_bounds__(THREADS) unpack(const __grid_constant__ Copy copy) {
    const int lanes = 1 << copy.lane_bits, lines = THREADS >> copy.lane_bits;
    // A row may touch one word more than it fills.
    const unsigned words = (copy.columns + WIDTH - 1) / WIDTH + 1;
    const unsigned across = (words + lanes - 1) >> copy.lane_bits;  // blocks
    const unsigned down = blockIdx.x / across;
    const int word = (blockIdx.x - down * across) * lanes + (threadIdx.x & lanes - 1);
    const int row = down * lines + (threadIdx.x >> copy.lane_bits);
    begin_launch();
    if (row >= copy.batch * copy.rows) return;
    const int matrix = copy.batch == 1 ? 0 : (unsigned)row / copy.rows;
    u16* to = copy.destination + matrix * copy.batch_stride
        + (row - matrix * copy.rows) * copy.row_stride;
    const u16* from = copy.source + (long long)row * copy.pitch;
    const int ahead = (unsigned long long)to % sizeof(uint4) / sizeof(u16);
    const int column = WIDTH * word - ahead;  // of the word's first element
    if (copy.column_stride == 1 && column >= 0 && column + WIDTH <= copy.columns) {
        const uint4* source = (const uint4*)(from + column - column % WIDTH);
        const uint4 low = source[0];
        const uint4 high = column % WIDTH ? source[1] : low;
        *(uint4*)(to + column) = realigned(low, high, column % WIDTH * sizeof(u16));
    } else {
        u16 elements[WIDTH];
        #pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            if (column + i >= 0 && column + i < copy.columns) elements[i] = from[column + i];
        #pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            if (column + i >= 0 && column + i < copy.columns)
                to[(column + i) * copy.column_stride] = elements[i];
    }
}
