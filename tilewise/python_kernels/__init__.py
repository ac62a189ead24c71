"""What kernels written in Python have in common: their packages, their source, their arrays."""
