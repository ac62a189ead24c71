"""Products of matrices in files, which may be larger than memory, computed in pieces."""
