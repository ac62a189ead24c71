"""Name the elements of shared arrays by as many indices as their declarations have."""

from __future__ import annotations

import math

import numpy as np

from tilewise.compiler import Compiled
from tilewise.compiler.shared_arrays import shape_of
from tilewise.devices.emulator.ptx.program import Program, plain_name


class SharedShapes:
    """The shapes of a program's shared arrays, as far as the source declares them plainly.

    A declaration is read when an element of its array is named for the first time.

    Parameters
    ----------
    program : Program
    compiled : Compiled
    """

    def __init__(self, program: Program, compiled: Compiled) -> None:
        self._program, self._compiled = program, compiled
        self._known: dict[str, tuple[int, tuple[int, ...]] | None] = {}

    def index(self, symbol: str, number: int, element: int) -> int | tuple[int, ...]:
        """Return the index of an element of a variable.

        Parameters
        ----------
        symbol : str
            The variable.
        number : int
            The element's number from the variable's beginning; it may be outside of it.
        element : int
            The bytes of an element.

        Returns
        -------
        int or tuple of int
            An index along each dimension; the number itself for an array of one dimension or of an
            unknown shape, for an element outside of it, and if its elements have another size.
        """
        shape = self._shape(symbol)
        if shape is None or shape[0] != element or not 0 <= number < math.prod(shape[1]):
            return number
        return tuple(int(i) for i in np.unravel_index(number, shape[1]))

    def number(self, symbol: str, index: int | tuple[int, ...]) -> int | None:
        """Return the number of an element, from what :meth:`index` returned; None for another's."""
        if isinstance(index, int):
            return index
        shape = self._shape(symbol)
        if shape is None or len(shape[1]) != len(index):
            return None
        return int(np.ravel_multi_index(index, shape[1]))

    def _shape(self, symbol: str) -> tuple[int, tuple[int, ...]] | None:
        if symbol not in self._known:
            size = self._program.shared_sizes.get(symbol, 0)
            given = (macro.partition("=") for macro in self._compiled.macros)
            macros = {name: value if mark else "1" for name, mark, value in given}
            found = shape_of(self._compiled.source, plain_name(symbol), size, macros)
            self._known[symbol] = None if found is None or len(found[1]) < 2 else found
        return self._known[symbol]
