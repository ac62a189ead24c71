"""16-bit products by ``mma.sync``, of any layout and alignment: the GPUs since Ampere."""
