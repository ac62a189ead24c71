"""The cost of a traced function: a thread's instructions for each element."""

from __future__ import annotations

from collections.abc import Iterable

from tilewise.epilogue.symbols import Symbol

# The instructions for one element of the functions of functions.cuh in float32, without loads and
# stores, counted in sm_90a's machine code: the difference between a kernel that computes the
# function for 16 elements and one that does so for 8, divided by 8.
INSTRUCTIONS = {
    "divide": 12, "minimum": 3, "maximum": 3, "exp": 8, "log": 25, "log1p": 28, "tanh": 15,
    "erf": 20, "gelu": 12, "sqrt": 13, "rsqrt": 4, "sigmoid": 9,
}  # fmt: skip
FREE = ("operand", "negative", "absolute")
"""The operations that are not counted: modifiers of the instruction that uses them, and operands,
which are counted where they are loaded.
"""


def instructions_of(needed: Iterable[Symbol], sums: Iterable[str]) -> int:
    """Return the number of instructions that compute some symbols from sums and operands.

    Parameters
    ----------
    needed : iterable of Symbol
        The symbols, each once.
    sums : iterable of str
        The operations that stand for sums.
    """
    free = {*FREE, *sums}
    return sum(INSTRUCTIONS.get(x.operation, 1) for x in needed if x.operation not in free)
