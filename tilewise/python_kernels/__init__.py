"""The common parts of kernels written in Python: their packages, their source, their arrays."""
