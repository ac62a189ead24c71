// Which tiles a cluster computes, in which order, and which phases of each.

// The tile of C that a cluster computes as its number ``index``. Tiles go by groups of GROUP_M rows
// of tiles, down a column within a group, so that the blocks of one time share A and B in L2.
struct Tile {
    int row, column, batch;
    __device__ Tile(int index, int rows, int columns) {
        int of_batch = rows * columns;
        batch = index / of_batch;
        index -= batch * of_batch;
        int group = index / (GROUP_M * columns), first = group * GROUP_M;
        int height = min(rows - first, GROUP_M);
        index -= group * GROUP_M * columns;
        row = first + index % height;
        column = index / height;
    }
};

// The first phase of part ``part`` of ``parts`` of a tile.
__device__ inline int first_k_step(int k_steps, int part, int parts) {
    return (long long)k_steps * part / parts;
}

// What one cluster computes: the tiles below ``whole`` in turn, and then one part of one of the
// others, which are ``rest`` and have ``parts`` parts each. The same part of all of them comes at
// one time, so that the blocks share A and B in L2.
struct Schedule {
    int unit, units, whole, rest, parts, k_steps, next;
    bool is_over;
    int tile, first, last, slot;  // of the present one: slot is -1 where it is the whole tile

    __device__ Schedule(int unit, int units, int whole, int rest, int parts, int k_steps)
        : unit(unit), units(units), whole(whole), rest(rest), parts(parts), k_steps(k_steps),
          next(unit), is_over(false) {}

    __device__ bool advance() {
        if (next < whole) {
            tile = next;
            next += units;
            first = 0;
            last = k_steps;
            slot = -1;
            return true;
        }
        if (!STREAM_K || is_over || unit >= rest * parts) return false;
        tile = whole + unit % rest;
        first = first_k_step(k_steps, unit / rest, parts);
        last = first_k_step(k_steps, unit / rest + 1, parts);
        slot = unit;
        is_over = true;
        return true;
    }

    __device__ void split(int rank) {
        first = first_k_step(k_steps, rank, SPLIT);
        last = first_k_step(k_steps, rank + 1, SPLIT);
    }
};

// The steps of loaders: for each tile one, and then one for each phase.
struct Steps {
    Schedule part;
    int k_step;
    bool is_first;

    __device__ Steps(const Schedule& part) : part(part), k_step(0) { this->part.last = 0; }

    __device__ bool advance(int rank) {
        is_first = ++k_step >= part.last;
        if (is_first) {
            if (!part.advance()) return false;
            if (SPLIT > 1) part.split(rank);
            k_step = part.first - 1;
        }
        return true;
    }
};
