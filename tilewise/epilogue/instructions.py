"""What a traced function costs: the instructions of a thread for each element."""

from __future__ import annotations

from collections.abc import Iterable

from tilewise.epilogue.symbols import Symbol

# Of sm_90a's machine code for float32, of functions.cuh, without loads and stores: what a kernel
# that computes it of 16 elements has more than one that computes it of 8, by 8.
INSTRUCTIONS = {
    "divide": 12, "minimum": 3, "maximum": 3, "exp": 8, "log": 25, "log1p": 28, "tanh": 15,
    "erf": 20, "gelu": 12, "sqrt": 13, "rsqrt": 4, "sigmoid": 9,
}  # fmt: skip
FREE = ("operand", "negative", "absolute")
"""What is a modifier of the instructions that use it, or is counted where it is read."""


def instructions_of(needed: Iterable[Symbol], sums: Iterable[str]) -> int:
    """Return how many instructions compute some symbols of their sums and operands.

    Parameters
    ----------
    needed : iterable of Symbol
        Each once.
    sums : iterable of str
        The operations that stand for sums.
    """
    free = {*FREE, *sums}
    return sum(INSTRUCTIONS.get(x.operation, 1) for x in needed if x.operation not in free)
