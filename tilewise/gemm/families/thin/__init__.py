"""Products of a matrix with a few rows or columns, which read the matrix once, in place."""
