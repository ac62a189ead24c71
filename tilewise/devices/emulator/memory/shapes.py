"""Turn offsets in shared arrays into indices, one for each dimension of the declaration."""

from __future__ import annotations

import math

import numpy as np

from tilewise.compiler import Compiled
from tilewise.compiler.shared_arrays import Shape, of_compiled
from tilewise.devices.emulator.ptx.program import Program, plain_name


class SharedShapes:
    """The shapes of a program's shared arrays, as its source declares them.

    The declaration of an array is read when one of its elements is named for the first time.

    Parameters
    ----------
    program : Program
        The program, with the size of each shared variable.
    compiled : Compiled
        The kernel's source and macros.
    dynamic : int
        The bytes of dynamic shared memory.
    """

    def __init__(self, program: Program, compiled: Compiled, dynamic: int) -> None:
        self._program, self._compiled, self._dynamic = program, compiled, dynamic
        self._known: dict[str, Shape | None] = {}

    def index(self, symbol: str, number: int, element: int) -> int | tuple[int, ...]:
        """Return the index of an element of a variable.

        Parameters
        ----------
        symbol : str
            The variable's symbol in PTX.
        number : int
            The element's number, counted from the variable's first one; it may be out of bounds.
        element : int
            The size of the accessed element in bytes.

        Returns
        -------
        int or tuple of int
            An index along each dimension. The number itself if the array has one dimension or an
            unknown shape, if the element is out of bounds, or if the array's elements have another
            size.
        """
        shape = self._shape(symbol)
        if shape is None or shape.element != element:
            return number
        if not 0 <= number < math.prod(shape.extents):
            return number
        return tuple(int(i) for i in np.unravel_index(number, shape.extents))

    def number(self, symbol: str, index: int | tuple[int, ...]) -> int | None:
        """Return an element's number from its :meth:`index`; None if the variable has none such."""
        if isinstance(index, int):
            return index
        shape = self._shape(symbol)
        if shape is None or len(shape.extents) != len(index):
            return None
        return int(np.ravel_multi_index(index, shape.extents))

    def _shape(self, symbol: str) -> Shape | None:
        """Return an array's shape; None if it has one dimension, or if it is not certain."""
        if symbol not in self._known:
            size = self._program.shared_sizes.get(symbol)
            found = of_compiled(
                self._compiled, plain_name(symbol), self._dynamic if size is None else size,
                is_dynamic=size is None,
            )  # fmt: skip
            self._known[symbol] = None if found is None or len(found.extents) < 2 else found
        return self._known[symbol]
