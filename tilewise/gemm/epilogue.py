"""The function that a caller gave for a product's epilogue, and the layout of its operands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tilewise.epilogue import Traced
from tilewise.places import ITEM_SIZES

AROUND = 0.5
"""The instructions for each element around the function, without those to scale and round it,
which a product without a function has too.
"""
ALONG, EACH = 0.5, 1.5
"""The instructions to read an operand that depends only on the row or only on the column, whose
loads serve several elements; and to read or store an element of a matrix, two of which one
instruction moves.
"""


class Strided(NamedTuple):
    """An array of an epilogue: an operand that broadcasts over D, or a result besides D.

    Attributes
    ----------
    dtype : str
    row_stride, column_stride, batch_stride : int
        The elements from one row, column and matrix of D to the next; 0 if the array does not
        depend on it.
    offset : int
        The bytes from the last multiple of 16 to the first element.
    """

    dtype: str
    row_stride: int
    column_stride: int
    batch_stride: int = 0
    offset: int = 0

    @property
    def is_matrix(self) -> bool:
        """Whether the array has an element of its own for each element of a matrix."""
        return self.row_stride != 0 and self.column_stride != 0

    @property
    def transposed(self) -> Strided:
        """The same memory with rows and columns exchanged."""
        rows, columns = self.column_stride, self.row_stride
        return Strided(self.dtype, rows, columns, self.batch_stride, self.offset)


class Epilogue(NamedTuple):
    """A function of alpha A B + beta C, with its operands.

    Attributes
    ----------
    function : Traced
    inputs : tuple of Strided or float
        The operands, in the function's order: arrays, and numbers.
    results : tuple of Strided
        The arrays that take the function's results besides the first one, which goes to D.
    """

    function: Traced
    inputs: tuple[Strided | float, ...]
    results: tuple[Strided, ...] = ()

    @property
    def arrays(self) -> tuple[Strided, ...]:
        """The operands that are arrays, followed by the results besides D."""
        return (*(x for x in self.inputs if isinstance(x, Strided)), *self.results)

    @property
    def scalars(self) -> tuple[float, ...]:
        """The operands that are numbers."""
        return tuple(x for x in self.inputs if not isinstance(x, Strided))

    @property
    def instructions(self) -> float:
        """The number of instructions that a thread executes for each element of D."""
        accesses = sum(EACH if x.is_matrix else ALONG for x in self.arrays)
        return AROUND + self.function.instructions + accesses

    @property
    def bytes(self) -> int:
        """The bytes of memory that are read and stored for each element of D, besides D itself."""
        return sum(ITEM_SIZES[x.dtype] for x in self.arrays if x.is_matrix)

    @property
    def transposed(self) -> Epilogue:
        """The same function for the transpose of D."""
        return self.of_arrays(x.transposed for x in self.arrays)

    def of_arrays(self, arrays: Iterable[Strided]) -> Epilogue:
        """Return the same function of other arrays, in the order of :attr:`arrays`."""
        left = iter(arrays)
        inputs = tuple(next(left) if isinstance(x, Strided) else x for x in self.inputs)
        return Epilogue(self.function, inputs, tuple(left))
