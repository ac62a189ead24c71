"""The arrays of a trace: the launch's arrays with their values, and those in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import Compiled
from tilewise.compiler.compiled import Shape
from tilewise.compiler.shared_arrays import of_compiled
from tilewise.devices.emulator import Emulator, EmulatorArray
from tilewise.devices.emulator.ptx.program import Program
from tilewise.lens.sentences import FLAT, Place, Shared
from tilewise.lens.steps import plain_numbers
from tilewise.pointer import Pointer
from tilewise.tensor_map import MappedArray

MOST_VALUES = 64 * 64  # elements of a matrix that is kept whole


def put(
    emulator: Emulator, args: Sequence[Any], names: Sequence[str]
) -> tuple[tuple[Any, ...], list[tuple[str, Any, npt.NDArray[Any] | None]]]:
    """Copy a launch's arrays to the emulator.

    Parameters
    ----------
    emulator : Emulator
    args : sequence
        The arguments of :meth:`tilewise.Kernel.launch`; arrays have to be NumPy's or the
        emulator's.
    names : sequence of str

    Returns
    -------
    args : tuple
    arrays : list of (str, EmulatorArray, ndarray or None)
        Each array once: its name, its copy on the emulator, and its values before the launch; None
        for an uninitialised array.
    """
    there: dict[int, Any] = {}
    arrays: list[tuple[str, Any, npt.NDArray[Any] | None]] = []

    def placed(name: str, value: Any) -> Any:
        if isinstance(value, MappedArray | Pointer):
            return replace(value, array=placed(name, value.array))
        if not isinstance(value, np.ndarray | EmulatorArray):
            return value
        if id(value) not in there:
            host = value if isinstance(value, np.ndarray) else None
            there[id(value)] = value if host is None else emulator.array(host)
            arrays.append((name, there[id(value)], host))
        return there[id(value)]

    made = tuple(placed(name, value) for name, value in zip(names, args, strict=True))
    return made, arrays


def array_part(place: Place, values: npt.NDArray[Any] | None) -> dict[str, Any]:
    """Return an array's part of the trace."""
    drawn = place.count if place.is_flat else place.rows * place.columns
    is_kept = (
        values is not None and values.size <= MOST_VALUES and values.dtype.kind != "c"
        and values.size == drawn  # else it is a view with gaps between its rows
    )  # fmt: skip
    dimensions: dict[str, Any] = {}
    if place.is_flat:
        dimensions = {"flat": True, "count": place.count}
    elif len(place.extents) > 2:
        dimensions = {"extents": list(place.extents)}
    return {
        "name": place.name, "dtype": "uint8" if place.dtype == bool else place.dtype.name,
        "rows": place.rows, "columns": place.columns, "leading": place.leading,
        "address": place.pointer, **dimensions,
        "values": plain_numbers(values.reshape(-1)) if values is not None and is_kept else None,
    }  # fmt: skip


def shared_arrays(
    program: Program, compiled: Compiled, dtype: np.dtype[Any] | None, dynamic: int
) -> tuple[Shared, ...]:
    """Return the shared arrays, with the rows and columns of their declarations.

    Parameters
    ----------
    program : Program
    compiled : Compiled
    dtype : dtype or None
        The dtype of the launch's arrays; None if they differ.
    dynamic : int
        The bytes of dynamic shared memory, which an array without a size has.
    """
    found = []
    for name, offset in sorted(program.shared_offsets.items(), key=lambda item: item[1]):
        size = program.shared_sizes.get(name)
        held = dynamic if size is None else size
        shape = of_compiled(compiled, name, held, is_dynamic=size is None)
        if shape is None or not _is_drawn(shape, dtype):
            shape = Shape(4 if dtype is None else dtype.itemsize, (), 0)
        components = 1 if _is_cell(shape, dtype) else shape.values
        element = shape.element // components
        count = held // element
        if len(shape.extents) > 1:
            extents, columns = shape.extents, shape.extents[-1] * components
        else:
            extents = (count // components,)
            columns = min(count, FLAT // components * components)
        rows = -(-count // columns) if columns else 0
        called = program.shared_names[name]
        found.append(Shared(called, offset, held, element, rows, columns, extents, components))
    return tuple(found)


def _is_drawn(shape: Shape, dtype: np.dtype[Any] | None) -> bool:
    """Return whether elements are drawn as they are declared, not as values of the launch's dtype.

    A cell shows one value, so that structures larger than a value are not. An array of bytes is
    usually raw storage for other types, so it is drawn as values of the launch's dtype.
    """
    if shape.values == 1:
        return dtype is None or shape.element > 1
    return shape.values > 1 or shape.element <= _most(dtype)


def _is_cell(shape: Shape, dtype: np.dtype[Any] | None) -> bool:
    """Return whether a cell shows an element whole; else it shows a component of a vector."""
    return shape.values < 2 or shape.element <= _most(dtype)


def _most(dtype: np.dtype[Any] | None) -> int:
    """Return the bytes of the largest structure that is drawn as one value."""
    return 4 if dtype is None else dtype.itemsize
