// D = alpha A B + beta C where A has few rows, or B few columns: bound by memory, so each element
// of the other operand, ``many``, is read once, where it lies, whatever its address and pitch.
// 16-bit inputs, float accumulators on the tensor cores.
//
// A warp loads 16-byte pieces of ``many`` straight into the fragments of mma.m16n8k16. A lane's
// pieces are contiguous in memory; they come from the aligned 16 bytes that hold them, realigned in
// registers. Which k (and if MN-major, which row) a piece stands for is free, as long as it is the
// same in both operands: no element goes to another lane. SPLIT warps of a block divide k, and
// their sums are added up in a fixed order.
//
// Macros: K_MAJOR (1 where k is the contiguous dimension of ``many``, 0 for MN-major); TILES, of 16
// rows of a warp (8 if MN-major); GROUPS, of 8 rows of ``few``; SPLIT; BLOCKS, the least number of
// blocks a multiprocessor must hold; INPUT (float16 or bfloat16); OUTPUT (INPUT or float); OVERLAP
// as in launch.cuh.
#include "../ptx/convert.cuh"
#include "../ptx/mma.cuh"
#include "epilogue.cuh"
#include "launch.cuh"
#include "unaligned.cuh"

constexpr int WARPS = 8, WIDTH = 8;          // elements of a piece
constexpr int PIECES = K_MAJOR ? 4 : 2;         // of a lane and line, one after another
constexpr int LINES = K_MAJOR ? 2 * TILES : 4;  // of a lane: rows, or steps of k
constexpr int ROWS = 16 * TILES;             // of a warp
constexpr int STEP = K_MAJOR ? 4 * PIECES * WIDTH : 16;  // of k
constexpr int SUMS = TILES * GROUPS * 4;     // of a thread
static_assert(K_MAJOR || TILES == 8, "16 rows of each lane's");

struct Product {
    const u16 *many, *few;
    const OUTPUT* c;
    OUTPUT* d;
    long long many_pitch, many_step;  // elements from line to line, and from matrix to matrix
    long long few_pitch, few_step;    // of whole 16 bytes, k contiguous
    long long c_many, c_few, c_step;  // from row to row of ``many``, and of ``few``
    long long d_many, d_few, d_step;
    int rows, few_rows, k, batch;
    float alpha, beta;
};

// The elements ``first`` to ``last`` of eight, with zeros around them.
__device__ __noinline__ uint4 gather(const u16* from, int first, int last) {
    u32 words[4] = {};
    #pragma unroll
    for (int i = 0; i < WIDTH; ++i)
        if (i >= first && i < last) words[i / 2] |= (u32)from[i] << 16 * (i % 2);
    return uint4{words[0], words[1], words[2], words[3]};
}

// The first ``count`` elements, and zeros. What follows them may be NaN, and 0 times NaN is NaN.
__device__ inline uint4 first_of(uint4 piece, int count) {
    u32 words[] = {piece.x, piece.y, piece.z, piece.w};
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        words[i] = count >= 2 * i + 2 ? words[i] : count == 2 * i + 1 ? words[i] & 0xffff : 0;
    return uint4{words[0], words[1], words[2], words[3]};
}

// A line of ``many``: the aligned 16 bytes in which it begins, and how far into them.
struct Line {
    const uint4* words;
    int shift;  // bytes
    __device__ Line() {}
    __device__ Line(const u16* from) {
        shift = (unsigned long long)from % sizeof(uint4);
        words = (const uint4*)((const char*)from - shift);
    }
};

__device__ inline void load_whole(uint4 (&words)[LINES][PIECES + 1], const Line (&lines)[LINES]) {
    #pragma unroll
    for (int i = 0; i < LINES; ++i) {
        #pragma unroll
        for (int j = 0; j < PIECES; ++j) words[i][j] = lines[i].words[j];
        words[i][PIECES] = words[i][PIECES - 1];
        if (lines[i].shift > 0) words[i][PIECES] = lines[i].words[PIECES];
    }
}

// The aligned 16 bytes that hold the line's first ``count`` elements. Those that reach beyond the
// matrix, ``begin`` to ``end``, are read element by element.
__device__ inline void load(uint4 (&words)[PIECES + 1], const Line& line, int count,
                            const u16* begin, const u16* end) {
    #pragma unroll
    for (int i = 0; i <= PIECES; ++i) {
        words[i] = uint4{0, 0, 0, 0};
        if (count <= 0 || 16 * i >= line.shift + 2 * min(count, PIECES * WIDTH)) continue;
        const u16* word = (const u16*)(line.words + i);
        const long long first = begin - word, last = end - word;
        if (first <= 0 && last >= WIDTH) words[i] = *(const uint4*)word;
        else words[i] = gather(word, max(first, 0LL), min(last, (long long)WIDTH));
    }
}

// ``COUNT`` neighbours along k of ``few``, of which ``left`` may be there; the others are 0.
template <bool WHOLE, int COUNT> __device__ inline uint4 load_few(const u16* from, int left) {
    if (!WHOLE && left < COUNT) return left > 0 ? gather(from, 0, left) : uint4{0, 0, 0, 0};
    if (COUNT == WIDTH) return *(const uint4*)from;
    const uint2 half = *(const uint2*)from;
    return uint4{half.x, half.y, 0, 0};
}

// Multiplies a lane's ``words`` of ``many`` by ``few`` at the same k; ``left`` elements of k are
// there.
template <bool WHOLE>
__device__ inline void multiply_step(float (&sum)[TILES][GROUPS][4],
                                     const uint4 (&words)[LINES][PIECES + 1],
                                     const Line (&lines)[LINES], const u16* few, const Product& p,
                                     int left, int g) {
#if K_MAJOR
    #pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
        const int count = left - piece * WIDTH;
        uint4 a[LINES];
        #pragma unroll
        for (int i = 0; i < LINES; ++i) {
            a[i] = realigned(words[i][piece], words[i][piece + 1], lines[i].shift);
            if (!WHOLE) a[i] = first_of(a[i], count);
        }
        #pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            const int row = min(8 * group + g, p.few_rows - 1);
            const uint4 b =
                load_few<WHOLE, WIDTH>(few + row * p.few_pitch + piece * WIDTH, count);
            #pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                const uint4 above = a[2 * tile], below = a[2 * tile + 1];
                mma_m16n8k16(sum[tile][group], above.x, below.x, above.y, below.y, b.x, b.y);
                mma_m16n8k16(sum[tile][group], above.z, below.z, above.w, below.w, b.z, b.w);
            }
        }
    }
#else
    u32 halves[LINES][PIECES][4];
    #pragma unroll
    for (int i = 0; i < LINES; ++i)
        #pragma unroll
        for (int j = 0; j < PIECES; ++j) {
            uint4 piece = realigned(words[i][j], words[i][j + 1], lines[i].shift);
            if (!WHOLE) piece = first_of(piece, i < left ? WIDTH : 0);
            halves[i][j][0] = piece.x;
            halves[i][j][1] = piece.y;
            halves[i][j][2] = piece.z;
            halves[i][j][3] = piece.w;
        }
    #pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
        const int row = min(8 * group + g, p.few_rows - 1);
        const uint4 b = load_few<WHOLE, 4>(few + row * p.few_pitch, left);
        #pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            u32 a[4];  // of a row, two neighbours along k
            #pragma unroll
            for (int i = 0; i < 4; ++i)
                a[i] = __byte_perm(halves[i / 2 * 2][i % 2][tile / 2],
                                   halves[i / 2 * 2 + 1][i % 2][tile / 2],
                                   tile % 2 ? 0x7632 : 0x5410);
            mma_m16n8k16(sum[tile][group], a[0], a[1], a[2], a[3], b.x, b.y);
        }
    }
#endif
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
thin_half(const __grid_constant__ Product p FUSED_PARAMETER) {
    __shared__ float others[WARPS / 2][SUMS][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int part = warp % SPLIT;
    const int top = (blockIdx.x * (WARPS / SPLIT) + warp / SPLIT) * ROWS;
    begin_launch();
    for (int batch = blockIdx.y; batch < p.batch; batch += gridDim.y) {
        const u16* many = p.many + batch * p.many_step;
        const u16* few = p.few + batch * p.few_step;
        const u16* end = many + (K_MAJOR ? (p.rows - 1) * p.many_pitch + p.k
                                      : (p.k - 1) * p.many_pitch + p.rows);
        float sum[TILES][GROUPS][4] = {};
        // Past the last line, that one is read again; its products are not stored.
        Line lines[LINES];
        #pragma unroll
        for (int i = 0; i < LINES; ++i)
            lines[i] = Line(many + (K_MAJOR ? min(top + 8 * i + g, p.rows - 1) * p.many_pitch
                                               + part * STEP + PIECES * WIDTH * t
                                         : (part * STEP + 4 * t + i) * p.many_pitch + top + 16 * g));
        const long long stride = K_MAJOR ? SPLIT * STEP / WIDTH : 2 * SPLIT * p.many_pitch;  // words
        for (int step = part * STEP; step < p.k; step += SPLIT * STEP) {
            const int at = step + STEP / 4 * t, left = p.k - at;
            bool is_inside = true;
            #pragma unroll
            for (int i = 0; i < LINES; ++i)
                is_inside = is_inside && (const u16*)lines[i].words >= many
                    && (const u16*)(lines[i].words + PIECES + (lines[i].shift > 0)) <= end;
            uint4 words[LINES][PIECES + 1];
            is_inside = __all_sync(~0u, is_inside);
            // Separate calls, so that the compiler issues the loads of both operands
            // together.
            if (is_inside && step + STEP <= p.k) {
                load_whole(words, lines);
                multiply_step<true>(sum, words, lines, few + at, p, left, g);
            } else if (is_inside) {
                load_whole(words, lines);
                multiply_step<false>(sum, words, lines, few + at, p, left, g);
            } else {
                const int across = K_MAJOR ? left : p.rows - (top + 16 * g);
                #pragma unroll
                for (int i = 0; i < LINES; ++i)
                    load(words[i], lines[i], K_MAJOR || i < left ? across : 0, many, end);
                multiply_step<false>(sum, words, lines, few + at, p, left, g);
            }
            #pragma unroll
            for (int i = 0; i < LINES; ++i) lines[i].words += stride;
        }
        float* mine = &sum[0][0][0];
        #pragma unroll
        for (int half = SPLIT / 2; half > 0; half /= 2) {
            float (&slot)[SUMS][32] = others[warp / SPLIT * (SPLIT / 2) + part % half];
            if (part >= half && part < 2 * half)
                #pragma unroll
                for (int i = 0; i < SUMS; ++i) slot[i][lane] = mine[i];
            __syncthreads();
            if (part < half)
                #pragma unroll
                for (int i = 0; i < SUMS; ++i) mine[i] += slot[i][lane];
            __syncthreads();
        }
        if (part > 0) continue;
        #pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
            #pragma unroll
            for (int group = 0; group < GROUPS; ++group)
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int row = top + (K_MAJOR ? 16 * tile + 8 * (i / 2) + g
                                                : 16 * g + 8 * (i / 2) + tile);
                    const int other = 8 * group + 2 * t + i % 2;
                    if (row >= p.rows || other >= p.few_rows) continue;
                    float value = epilogue(sum[tile][group][i], p.alpha, p.beta, [&] {
                        return to_float(p.c[batch * p.c_step + row * p.c_many + other * p.c_few]);
                    });
                    value = FUSED(value, batch, other, row);
                    p.d[batch * p.d_step + row * p.d_many + other * p.d_few] = from_float<OUTPUT>(value);
                }
    }
}
