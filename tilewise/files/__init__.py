"""Products of matrices that lie in files, larger than memory, by pieces."""
