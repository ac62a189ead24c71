// The tile scheduler: which tiles of D a cluster computes, in which order, and which k-steps of each.

#include "hopper_tile.cuh"

// The first k-step of split ``split`` of ``splits`` of a tile.
__device__ inline int first_k_step(int k_steps, int split, int splits) {
    return (long long)k_steps * split / splits;
}

// The work of one cluster: first the data-parallel tiles, in turn with the other clusters; then one
// split of one tile of the stream-K tail. The tail has ``tail_tiles`` tiles of ``splits`` splits each,
// and the same split of all of them runs at the same time, so that the blocks share A and B in L2.
struct Schedule {
    int cluster, clusters, data_parallel_tiles, tail_tiles, splits, k_steps, next;
    bool is_over;
    // The present tile, its k-steps, and the slot of the workspace for its sums: -1 for none.
    int tile, first, last, slot;

    __device__ Schedule(int cluster, int clusters, int data_parallel_tiles, int tail_tiles,
                        int splits, int k_steps)
        : cluster(cluster), clusters(clusters), data_parallel_tiles(data_parallel_tiles),
          tail_tiles(tail_tiles), splits(splits), k_steps(k_steps),
          next(cluster), is_over(false) {}

    __device__ bool advance() {
        if (next < data_parallel_tiles) {
            tile = next;
            next += clusters;
            first = 0;
            last = k_steps;
            slot = -1;
            return true;
        }
        if (!STREAM_K || is_over || cluster >= tail_tiles * splits) return false;
        tile = data_parallel_tiles + cluster % tail_tiles;
        first = first_k_step(k_steps, cluster / tail_tiles, splits);
        last = first_k_step(k_steps, cluster / tail_tiles + 1, splits);
        slot = cluster;
        is_over = true;
        return true;
    }

    __device__ void split(int rank) {
        first = first_k_step(k_steps, rank, SPLIT);
        last = first_k_step(k_steps, rank + 1, SPLIT);
    }
};

// The steps of the threads that load unaligned operands: for each tile one to set it up, and then one
// for each k-step.
struct Steps {
    Schedule work;
    int k_step;
    bool is_first;

    __device__ Steps(const Schedule& work) : work(work), k_step(0) { this->work.last = 0; }

    __device__ bool advance(int rank) {
        is_first = ++k_step >= work.last;
        if (is_first) {
            if (!work.advance()) return false;
            if (SPLIT > 1) work.split(rank);
            k_step = work.first - 1;
        }
        return true;
    }
};
