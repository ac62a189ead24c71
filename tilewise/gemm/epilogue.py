"""The function that a caller gave for a product's epilogue, and where its operands lie."""

from __future__ import annotations

from typing import NamedTuple

from tilewise.epilogue import Traced


class Strided(NamedTuple):
    """An array of an epilogue: an operand that broadcasts over D, or a result besides D.

    Attributes
    ----------
    dtype : str
    row_stride, column_stride, batch_stride : int
        Elements from one row of D, column, and matrix, to the next; 0 where that changes nothing.
    """

    dtype: str
    row_stride: int
    column_stride: int
    batch_stride: int = 0

    @property
    def transposed(self) -> Strided:
        """The same memory, rows for columns."""
        return Strided(self.dtype, self.column_stride, self.row_stride, self.batch_stride)


class Epilogue(NamedTuple):
    """A function of alpha A B + beta C, with its operands.

    Attributes
    ----------
    function : Traced
    inputs : tuple of Strided or float
        The operands, in the function's order: arrays, and numbers.
    results : tuple of Strided
        Where the function's results besides the first go, which goes to D.
    """

    function: Traced
    inputs: tuple[Strided | float, ...]
    results: tuple[Strided, ...] = ()

    @property
    def arrays(self) -> tuple[Strided, ...]:
        """The operands that are arrays, and then the results besides D."""
        return (*(x for x in self.inputs if isinstance(x, Strided)), *self.results)

    @property
    def scalars(self) -> tuple[float, ...]:
        """The operands that are numbers."""
        return tuple(x for x in self.inputs if not isinstance(x, Strided))

    @property
    def transposed(self) -> Epilogue:
        """The same function for D's transpose."""
        inputs = tuple(x.transposed if isinstance(x, Strided) else x for x in self.inputs)
        return Epilogue(self.function, inputs, tuple(x.transposed for x in self.results))
