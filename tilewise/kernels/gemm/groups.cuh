// The groups of a grouped product: where each ends, and which tiles of D it has.
//
// Macros: OFFSET, the type of the offsets (int or long long); MOST_GROUPS, the most groups that a launch
// may have, up to 1024.
#pragma once

#ifndef OFFSET
#define OFFSET int
#endif
#ifndef MOST_GROUPS
#define MOST_GROUPS 256
#endif
static_assert(MOST_GROUPS <= 1024, "two rounds of 32 lanes find a group");

// In shared memory. Group g reaches from ``ends[g - 1]`` (0 for the first) to ``ends[g]``, and its first
// tile is number ``starts[g]``; ``starts[groups]`` is the number of all tiles.
struct Groups {
    int ends[MOST_GROUPS], starts[MOST_GROUPS + 1];

    // Called by all threads of a block. ``tiles_of(length)`` is the number of tiles of a group of that length.
    // Offsets that are not in order or lie outside the array are clamped, so that groups are in order, do
    // not overlap and end within ``total``.
    template <typename TilesOf>
    __device__ void read(const OFFSET* offsets, int groups, int total, TilesOf tiles_of) {
        for (int i = threadIdx.x; i < groups; i += blockDim.x) {
            ends[i] = (int)min(max(offsets[i], (OFFSET)0), (OFFSET)total);
        }
        __syncthreads();
        if (threadIdx.x < 32) {  // each lane scans consecutive groups
            const int lane = threadIdx.x, each = (groups + 31) / 32;
            const int first = min(lane * each, groups), last = min(first + each, groups);
            int end = 0;
            for (int i = first; i < last; ++i) end = max(end, ends[i]);
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                int other = __shfl_up_sync(~0u, end, step);
                if (lane >= step) end = max(end, other);
            }
            end = __shfl_up_sync(~0u, end, 1);  // where the groups of the lanes before end
            if (lane == 0) end = 0;
            int tiles = 0;
            for (int i = first; i < last; ++i) {
                int begin = end;
                end = max(begin, ends[i]);
                ends[i] = end;
                starts[i] = tiles;
                tiles += tiles_of(end - begin);
            }
            int sum = tiles;
#pragma unroll
            for (int step = 1; step < 32; step *= 2) {
                int other = __shfl_up_sync(~0u, sum, step);
                if (lane >= step) sum += other;
            }
            for (int i = first; i < last; ++i) starts[i] += sum - tiles;
            if (lane == 31) starts[groups] = sum;
        }
        __syncthreads();
    }

    // The group of tile number ``tile``; -1 where there is no such tile. Called by all lanes of a warp. Where
    // several groups have the same first tile, all but the last of them have no tiles.
    __device__ int find(int tile, int groups) const {
        if (tile >= starts[groups]) return -1;
        const int lane = threadIdx.x % 32, each = (groups + 31) / 32;
        int at = lane * each;
        const int first = each * (__popc(__ballot_sync(~0u, at < groups && starts[at] <= tile)) - 1);
        at = first + lane;
        return first + __popc(__ballot_sync(~0u, lane < each && at < groups && starts[at] <= tile)) - 1;
    }

    __device__ int begin(int group) const { return group ? ends[group - 1] : 0; }
};
