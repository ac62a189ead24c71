"""Read the launch that ``kernel[grid, block]`` describes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewise.numba.packages import numba

_FOR_ALL_BLOCK = 256


@dataclass(frozen=True)
class Configured:
    """A kernel of Numba's with its grid and its block.

    Attributes
    ----------
    dispatcher : numba.cuda.dispatcher.CUDADispatcher
    grid, block : tuple of int
    shared : int
        Dynamic shared memory a block, bytes.
    """

    dispatcher: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int

    @classmethod
    def of(cls, kernel: Any) -> Configured:
        """Read it from what a caller gives.

        Raises
        ------
        TypeError
            If it is something else.
        """
        module = numba("numba.cuda.dispatcher")
        if isinstance(kernel, module.CUDADispatcher):
            raise TypeError(
                f"{kernel.__name__} has no grid and block; pass {kernel.__name__}[grid, block]"
            )
        if isinstance(kernel, module.ForAll):
            block = kernel.thread_per_block or _FOR_ALL_BLOCK
            grid = -(-kernel.ntasks // block)
            return cls(kernel.dispatcher, (grid,), (block,), kernel.sharedmem)
        if isinstance(kernel, module._LaunchConfiguration):
            return cls(kernel.dispatcher, kernel.griddim, kernel.blockdim, kernel.sharedmem)
        raise TypeError(
            f"kernel is {kernel!r}; it takes kernel[grid, block] of what @numba.cuda.jit gives"
        )

    @property
    def names(self) -> list[str]:
        """The kernel's parameters."""
        code = self.dispatcher.py_func.__code__
        return list(code.co_varnames[: code.co_argcount])
