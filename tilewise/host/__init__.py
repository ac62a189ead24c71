"""Products of matrices that lie in the host's memory: their way to a GPU and back, by pieces."""
