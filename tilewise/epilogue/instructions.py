"""What a traced function costs: the instructions of a thread for each element."""

from __future__ import annotations

from collections.abc import Iterable

from tilewise.epilogue.symbols import Symbol

# Instructions for one element, of the functions of functions.cuh in float32, without loads and
# stores, counted in sm_90a's machine code: the difference between a kernel that computes the
# function for 16 elements and one that does so for 8, divided by 8.
INSTRUCTIONS = {
    "divide": 12, "minimum": 3, "maximum": 3, "exp": 8, "log": 25, "log1p": 28, "tanh": 15,
    "erf": 20, "gelu": 12, "sqrt": 13, "rsqrt": 4, "sigmoid": 9,
}  # fmt: skip
FREE = ("operand", "negative", "absolute")
"""Operations that are not counted here: a modifier of the instruction that uses it, or an operand,
which is counted where it is loaded."""


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
