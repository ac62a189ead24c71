"""Turn offsets in shared arrays into indices, one for each dimension of the declaration."""

from __future__ import annotations

from tilewise.compiler import Compiled
from tilewise.compiler.compiled import Shape
from tilewise.compiler.shared_arrays import of_compiled
from tilewise.compiler.type_names import COMPONENTS
from tilewise.devices.emulator.ptx.program import Program
from tilewise.shown import index_of


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

    def place(
        self, symbol: str, offset: int, element: int, width: int
    ) -> tuple[int | tuple[int, ...], str]:
        """Return the index and the component of the element that an access reaches.

        Parameters
        ----------
        symbol : str
            The variable's symbol in PTX.
        offset : int
            The accessed byte, counted from the variable's first one; it may be out of bounds.
        element, width : int
            The bytes of an accessed element, and of the whole access.

        Returns
        -------
        index : int or tuple of int
            An index along each dimension; a number if the array has one dimension or an unknown
            shape. It counts accessed elements if the array's own are unknown or smaller.
        component : str
            The component, such as ``"x"``, if the element is a vector and the access reaches only
            a part of it; else empty.
        """
        shape = self._shape(symbol)
        if shape is None or shape.element % element:
            return offset // element, ""
        number, inner = divmod(offset, shape.element)
        component = ""
        if shape.values > 1 and (inner or width < shape.element):
            component = COMPONENTS[inner * shape.values // shape.element]
        return index_of(number, shape.extents) if len(shape.extents) > 1 else number, component

    def _shape(self, symbol: str) -> Shape | None:
        """Return an array's shape; None if the size of its elements is not certain."""
        if symbol not in self._known:
            size = self._program.shared_sizes.get(symbol)
            self._known[symbol] = of_compiled(
                self._compiled, symbol, self._dynamic if size is None else size,
                is_dynamic=size is None,
            )  # fmt: skip
        return self._known[symbol]
