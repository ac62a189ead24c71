"""Products of matrices in the host's memory: they travel to a GPU and back in pieces."""
