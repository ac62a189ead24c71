"""The arrays of a trace: the launch's arrays with their values, and those in shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import Compiled
from tilewise.compiler.shared_arrays import element_size, extents
from tilewise.devices.emulator import Emulator, EmulatorArray
from tilewise.devices.emulator.ptx.program import Program, plain_name
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
    is_kept = values is not None and values.size <= MOST_VALUES and values.dtype.kind != "c"
    of_one_dimension = {"flat": True, "count": place.count} if place.is_flat else {}
    return {
        "name": place.name, "dtype": "uint8" if place.dtype == bool else place.dtype.name,
        "rows": place.rows, "columns": place.columns, "leading": place.leading,
        "address": place.pointer, **of_one_dimension,
        "values": plain_numbers(values.reshape(-1)) if values is not None and is_kept else None,
    }  # fmt: skip


def shared_arrays(
    program: Program,
    compiled: Compiled,
    dtype: np.dtype[Any] | None,
    defines: Mapping[str, Any],
    dynamic: int,
) -> tuple[Shared, ...]:
    """Return the shared arrays, with the rows and columns of their declarations.

    An element has the dtype of the launch's arrays if these agree, else its declared size; an array
    without a size is the launch's dynamic shared memory.
    """
    sizes = {v.name: v.size for v in program.module.variables.values() if v.space == "shared"}
    for function in program.functions:
        sizes |= {v.name: v.size for v in function.variables.values() if v.space == "shared"}
    found = []
    for name, offset in sorted(program.shared_offsets.items(), key=lambda item: item[1]):
        plain = plain_name(name)
        element = dtype.itemsize if dtype is not None else element_size(compiled.source, plain)
        held = sizes.get(name, 0) or dynamic
        count = held // element
        columns = _columns(compiled.source, plain, count, defines)
        is_flat = not columns
        columns = columns or min(count, FLAT)
        rows = -(-count // columns) if columns else 0
        called = program.shared_names[name]
        found.append(Shared(called, offset, held, element, rows, columns, is_flat))
    return tuple(found)


def _columns(source: str, name: str, count: int, defines: Mapping[str, Any]) -> int:
    """Return the columns of a shared array: its last extent, if the source states it plainly.

    They are 0 for an array of one dimension, and if the source does not state them.
    """
    shape = extents(source, name, defines)
    return shape[-1] if len(shape or ()) > 1 and math.prod(shape) == count else 0
