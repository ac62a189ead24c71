"""Grouped products: one dimension of A and B in groups, each of which is a product of its own."""
