"""Count a whole grid from some of its blocks, by how registers depend on ``blockIdx``."""
