"""16-bit products on the tensor cores of Hopper GPUs."""
