// The staged operand: a matrix that the caller's function reads from shared memory, to which the producer copies it.
//
// After the k-steps of a tile, the producer copies the operand's elements of that tile by TMA: with STAGED_APART to
// memory behind the ring, and otherwise to the next TAKEN stages of the ring. There the consumers replace each
// element by that of D, and store D by TMA from the same place; then they release it. The barrier ``landed``
// completes once all elements of a tile are there. The barrier ``full`` of a stage that holds the operand completes
// as soon as its copies have begun: with PING_PONG, the other consumer goes past these stages without waiting for
// them, and if ``full`` were behind, it would take an older fill of the stage for its own.
//
// STAGED is the operand's number in EPILOGUE_INPUTS; -1 for none. Its elements have 16 bits, its lines are 16-byte
// aligned, and it has the layout of D, which is stored by TMA.
#pragma once
#include "../ptx/mbarrier.cuh"
#include "../ptx/named_barrier.cuh"
#include "hopper_store.cuh"

#if STAGED >= 0
#define STAGED_PARAMETER const __grid_constant__ MappedOperand staged,
static_assert(TMA_OUT && !OUT_FLOAT && !INTERLEAVED && !HAS_UNALIGNED && SPLIT == 1, "what a staged operand takes");
#else
#define STAGED_PARAMETER
#endif

// A tile's elements of the operand, in boxes of 64 rows and OUT_COLUMNS columns. A box is four of D's, one for each
// warp. ``stage`` is the first stage that they are in; ``mine`` is the consumer's place among the SHARERS of the
// tile, whose boxes alternate.
struct StagedTile {
    static constexpr int PARTS = OUT_N / OUT_COLUMNS, COUNT = ROWS / 64 * PARTS;  // boxes of one consumer
    static constexpr int BYTES = 4 * OUT_BYTES;
    static constexpr int BOXES = COUNT * SHARERS, EACH = STAGE_BYTES / BYTES;  // of the tile, of a stage
    static constexpr int TAKEN = STAGED < 0 || STAGED_APART ? 0 : (BOXES + EACH - 1) / EACH;
    static_assert(EACH >= SHARERS && TAKEN <= STAGES, "each stage has boxes of all consumers of the tile");
    // The number of barriers ``landed``, which tiles use in turn. A tile takes a stage or more of the ring, so that
    // the producer is less than STAGES tiles ahead. Behind the ring, each consumer of PING_PONG has a barrier.
    static constexpr int BARRIERS = TAKEN ? STAGES : CONSUMERS / SHARERS;
    u32 ring;
    int stage, mine;

    // The number among the TAKEN of the stage that a box is in.
    __device__ int stage_of(int box) const { return (box * SHARERS + mine) / EACH; }
    __device__ int in_ring(int taken) const { return (stage + taken) % STAGES; }

    // Where a warp's rows of a box are.
    __device__ u32 buffer(int box, int warp) const {
        if (!TAKEN) return ring + STAGES * STAGE_BYTES + (box * SHARERS + mine) * BYTES + warp * OUT_BYTES;
        const u32 at = ring + in_ring(stage_of(box)) * STAGE_BYTES;
        return at + (box * SHARERS + mine) % EACH * BYTES + warp * OUT_BYTES;
    }

    // Called once ``box`` was replaced and its store has begun: releases what the consumer no longer needs, stages by
    // ``release(stage)``, and the memory behind the ring by the barrier ``free``.
    template <class Release> __device__ void leave(int box, int consumer, int thread, u32 free, Release release) const {
        const int here = stage_of(box), before = box ? stage_of(box - 1) : here;
        if (TAKEN && before < here) {
            if (thread % 32 == 0) tma_store_wait_group_read<1>();  // all but the store of this box
            named_barrier_sync<128>(1 + consumer);
            for (int taken = before; taken < here; ++taken) release(in_ring(taken));
        }
        if (box + 1 == COUNT) {
            if (thread % 32 == 0) tma_store_wait_group_read<0>();
            named_barrier_sync<128>(1 + consumer);
            for (int taken = here; taken < TAKEN; ++taken) release(in_ring(taken));
            if (!TAKEN && thread == 0) mbarrier_arrive<false>(free);
        }
    }
};

#if STAGED >= 0
// The producer's part: starts the copies of a tile's elements. ``row`` and ``column`` are the tile's first in D.
struct StagedLoads {
    const MappedOperand& from;
    u32 landed;
    int row, column, matrix;

    __device__ void start(int box, u32 to) const {
        const int of_consumer = box / SHARERS;
        const int y = row + box % SHARERS * ROWS + of_consumer / StagedTile::PARTS * 64;
        const int x = column + of_consumer % StagedTile::PARTS * OUT_COLUMNS;
        if (!OUT_COLUMN_MAJOR) tma_load<false>(to, from.map, x, y, matrix, landed, 0);
#pragma unroll
        for (int warp = 0; OUT_COLUMN_MAJOR && warp < 4; ++warp) {
            tma_load<false>(to + warp * OUT_BYTES, from.map, y + 16 * warp, x, matrix, landed, 0);
        }
    }

    // To the memory behind the ring.
    __device__ void load(u32 to) const {
        mbarrier_arrive_expect_tx(landed, StagedTile::BOXES * StagedTile::BYTES);
#pragma unroll 1
        for (int box = 0; box < StagedTile::BOXES; ++box) start(box, to + box * StagedTile::BYTES);
    }

    // To the next stages of the ring.
    __device__ void load(u32 ring, int& stage, u32& parity, u32 full_at, u32 empty_at) const {
        mbarrier_arrive_expect_tx(landed, StagedTile::BOXES * StagedTile::BYTES);
#pragma unroll 1
        for (int box = 0; box < StagedTile::BOXES;) {
            mbarrier_wait(empty_at + 8 * stage, parity ^ 1);
            u32 to = ring + stage * STAGE_BYTES;
#pragma unroll 1
            for (int i = 0; i < StagedTile::EACH && box < StagedTile::BOXES; ++i, ++box) {
                start(box, to + i * StagedTile::BYTES);
            }
            mbarrier_arrive<false>(full_at + 8 * stage);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
};
#endif
