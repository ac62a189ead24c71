"""A launch that is written as text: its arguments, its grid, and what its result should be."""
