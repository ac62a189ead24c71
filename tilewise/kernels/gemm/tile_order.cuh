#pragma once

// The order in which blocks compute the tiles of D.

// The coordinates of a block's tile. Blocks go down ``rows`` rows of tiles, then across, so that
// those that run at the same time share A and B in L2.
__device__ inline uint2 tile_of(unsigned block, unsigned down, unsigned across, unsigned rows) {
    const unsigned first = block / (rows * across) * rows, here = min(rows, down - first);
    const unsigned rest = block % (rows * across);
    return make_uint2(first + rest % here, rest / here);
}
