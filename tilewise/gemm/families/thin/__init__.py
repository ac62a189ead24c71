"""Products of a matrix and a few rows or columns, which read the matrix once, in place."""
