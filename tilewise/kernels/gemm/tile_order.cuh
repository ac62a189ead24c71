#pragma once

// In which order blocks compute the tiles of D.

// The tile that a block computes: down ``rows`` of tiles, then across, so that those that run at
// once share in L2 what they read of A and of B.
__device__ inline uint2 tile_of(unsigned block, unsigned down, unsigned across, unsigned rows) {
    const unsigned first = block / (rows * across) * rows, here = min(rows, down - first);
    const unsigned rest = block % (rows * across);
    return make_uint2(first + rest % here, rest / here);
}
