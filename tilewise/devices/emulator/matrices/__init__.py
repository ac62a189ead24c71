"""Products of small matrices by the tensor cores, of a warp and of a warpgroup."""
