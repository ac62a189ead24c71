"""The ladder's kernels for one product, from one thread to the vendor's speed."""
