"""Products of a matrix and a few rows or columns."""
