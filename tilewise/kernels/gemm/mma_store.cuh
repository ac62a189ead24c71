// The epilogue of mma.cu: a warp's accumulators, from mma.sync, become elements of D.
//
// Macros: those of mma.cu. mma_product.cuh includes this file after it defines what is used here.
#pragma once

// A warp's accumulators go through shared memory, 16 rows of D at a time, so that neighbouring lanes store
// neighbouring elements of D. With this pitch, the lanes' stores of pairs use all banks.
constexpr int PITCH = WARP_N + 8, PIECE = 4;
static_assert(WARPS * 16 * PITCH * sizeof(float) <= STAGES * STAGE);
struct alignas(PIECE * sizeof(OUTPUT)) Piece { OUTPUT x[PIECE]; };
template <int COUNT> struct alignas(COUNT * sizeof(float)) Numbers { float x[COUNT]; };

// Stores the 16 rows of accumulators at ``sums`` to D, at row ``top`` and column ``left``. A lane stores WIDTH
// elements at once.
template <int WIDTH, bool READS_C, typename P>
__device__ inline void store_rows(const float* sums, const P& p, const Matrix<const OUTPUT>& c,
                                  const Matrix<OUTPUT>& d, unsigned batch, unsigned top, unsigned left,
                                  const Fused& fused) {
    const unsigned at = threadIdx.x % 32 * WIDTH, x = at % WARP_N;
    unsigned y = at / WARP_N;
    // Eight lanes, which read at once, then have rows y and y + 2: those of y and y + 1 share banks.
    if (WARP_N == 16 && WIDTH == PIECE) y = y & 4 | y << 1 & 2 | y >> 1 & 1;
    top += y, left += x;
    sums += y * PITCH + x;
    OUTPUT* to = d.at(top, left);
    #pragma unroll(WIDTH > 1 && !READS_C && !FUSES ? 16 : 4)
    for (int i = 0; i < 16 * WARP_N; i += 32 * WIDTH) {
        const unsigned down = i / WARP_N, across = i % WARP_N;
        if (top + down >= p.m || left + across >= p.columns) continue;
        const Numbers<WIDTH> sum = *(const Numbers<WIDTH>*)(sums + down * PITCH + across);
        Piece piece;
        #pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            float value = scaled(sum.x[j], p.alpha);
            if ((READS_C || FUSES) && left + across + j < p.n) {
                if (READS_C) value = plus_c(value, p.beta, to_float(*c.at(top + down, left + across + j)));
                value = fused(value, batch, top + down, left + across + j);
            }
            piece.x[j] = from_float<OUTPUT>(value);
        }
        OUTPUT* there = to + down * d.row_stride + across * d.column_stride;
        if (WIDTH == PIECE && left + across + PIECE <= p.columns) *(Piece*)there = piece;
        else
            #pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                if (left + across + j < p.columns) there[j * d.column_stride] = piece.x[j];
    }
}

// What follows is for a D whose rows are not 16-byte aligned, without C and without a caller's function. The
// accumulators are staged in shared memory as elements of D. Each staged row has the same offset from a
// 16-byte boundary as its row of D, so that aligned 16-byte words are stored at once. The words at a row's
// ends, which may hold elements of other tiles, are stored element by element.
constexpr int WORD = 16 / sizeof(OUTPUT);  // elements in 16 bytes

// The number of elements from the 16-byte boundary at or before ``row`` to ``row``.
__device__ inline unsigned elements_behind(const OUTPUT* row) {
    return (unsigned)(size_t)row / sizeof(OUTPUT) % WORD;
}

// Stores the 16 rows at ``staged`` to D, at row ``top`` and column ``left``.
__device__ inline void store_staged(const OUTPUT* staged, const Matrix<OUTPUT>& d, unsigned top,
                                    unsigned left, unsigned m, unsigned n) {
    const unsigned lane = threadIdx.x % 32, columns = min(n - left, (unsigned)WARP_N);
    constexpr int LANES = WARP_N / WORD;  // of a row
    const unsigned word = lane % LANES * WORD;
    #pragma unroll
    for (int i = 0; i < 16; i += 32 / LANES) {
        const unsigned y = i + lane / LANES;
        OUTPUT* row = d.at(top + y, left);
        const unsigned begin = elements_behind(row), end = begin + columns;
        if (top + y < m && word >= begin && word + WORD <= end)
            st_global(row - begin + word, *(const uint4*)(staged + y * PITCH + word));
    }
    // The elements of a row's first word and of its last one. If the warp's tile is not cut by D's edge, they
    // are together WORD elements, or none.
    #pragma unroll
    for (int i = 0; i < 16; i += 32 / WORD) {
        const unsigned y = i + lane / WORD, x = lane % WORD;
        OUTPUT* row = d.at(top + y, left);
        const unsigned begin = elements_behind(row), end = begin + columns, last = end / WORD * WORD;
        if (top + y >= m) continue;
        auto store_one = [&](unsigned at) { row[(int)at - (int)begin] = staged[y * PITCH + at]; };
        const bool is_of_first = begin > 0 && x >= begin && x < end;
        const bool is_of_last = last + x < end && (begin == 0 || last > 0);
        if (is_of_first) store_one(x);
        else if (is_of_last) store_one(last + x);
        if (is_of_first && is_of_last) store_one(last + x);
    }
}

// Stages a warp's accumulators and stores them to a D whose rows are not 16-byte aligned.
template <typename P>
__device__ inline void store_unaligned(const Sums& sum, OUTPUT* staged, const P& p, const Matrix<OUTPUT>& d,
                                       unsigned top, unsigned left) {
    const unsigned lane = threadIdx.x % 32, y = lane / 4;
    staged += threadIdx.x / 32 * 16 * PITCH;
    OUTPUT* to = staged + y * PITCH + elements_behind(d.at(top + y, left)) + lane % 4 * 2;
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        #pragma unroll
        for (int j = 0; j < 2 * COLUMNS; ++j)
            #pragma unroll
            for (int l = 0; l < 4; ++l)  // two columns, and the same columns 8 rows below
                to[j * 8 + l % 2 + l / 2 * 8 * PITCH] = from_float<OUTPUT>(scaled(sum[i][j / 2][j % 2][l], p.alpha));
        __syncwarp();
        if (left < p.columns) store_staged(staged, d, top + 16 * i, left, p.m, p.columns);
        __syncwarp();
    }
}

// Stores a warp's tile, at row ``top`` and column ``left`` of D.
template <typename P, typename At>
__device__ inline void store(const Sums& sum, float* sums, const P& p, const At& at, unsigned top,
                             unsigned left, const Fused& fused) {
    const Matrix<const OUTPUT> c = p.c[at.batch];
    Matrix<OUTPUT> d = p.d[at.batch];
    d.pointer += at.part * p.part_stride;
    if constexpr (D_UNALIGNED) {
        __syncthreads();  // all threads have read the tiles
        store_unaligned(sum, (OUTPUT*)sums, p, d, top, left);
        return;
    }
    const bool by_pieces = d.column_stride == 1 && d.row_stride % PIECE == 0
        && (size_t)d.pointer % sizeof(Piece) == 0;
    const unsigned lane = threadIdx.x % 32;
    float* own = sums + threadIdx.x / 32 * 16 * PITCH;
    float2* to = (float2*)(own + lane / 4 * PITCH + lane % 4 * 2);
    __syncthreads();  // all threads have read the tiles
    #pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        #pragma unroll
        for (int j = 0; j < 2 * COLUMNS; ++j) {
            const float* of = sum[i][j / 2][j % 2];
            to[j * 4] = {of[0], of[1]};
            to[j * 4 + 4 * PITCH] = {of[2], of[3]};  // 8 rows below
        }
        __syncwarp();
        const unsigned y = top + 16 * i;
        if (by_pieces && p.beta == 0) store_rows<PIECE, false>(own, p, c, d, at.batch, y, left, fused);
        else if (p.beta == 0) store_rows<1, false>(own, p, c, d, at.batch, y, left, fused);
        else if (by_pieces) store_rows<PIECE, true>(own, p, c, d, at.batch, y, left, fused);
        else store_rows<1, true>(own, p, c, d, at.batch, y, left, fused);
        __syncwarp();
    }
}
