"""The ladder's kernels: one product, from one thread to the vendor's speed."""
