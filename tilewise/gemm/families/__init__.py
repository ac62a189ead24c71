"""The families of kernels that compute products."""
