"""The process that Nsight Compute watches, which only launches each case once, in order.

``python -m tilewise.lens.nsight_child FOLDER`` reads the cases that :func:`save` wrote there, and
writes the results beside them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.devices import get_device
from tilewise.devices.arguments import described
from tilewise.devices.extents import span
from tilewise.errors import TilewiseError
from tilewise.kernel import Kernel
from tilewise.launch import dim3
from tilewise.places import Place, TensorMap
from tilewise.pointer import Pointer
from tilewise.provenance import write_whole
from tilewise.tensor_map import MappedArray

CASES, ARRAYS, OUTCOME = "cases.json", "arrays.npz", "outcome.json"


@dataclass(frozen=True)
class Case:
    """One launch of one kernel.

    Attributes
    ----------
    source : str or Path
        CUDA C++ or PTX, or the path of a file with it, as in :class:`tilewise.Kernel`.
    name : str
        The kernel's name.
    grid, block : int or sequence of ints
        The blocks of the grid and the threads of a block, x first.
    args : tuple
        An argument for each parameter: numbers, NumPy arrays, and for a structure anything with the
        buffer protocol. An array that is given twice is one array on the GPU too; views of one
        array are two. A :class:`tilewise.Pointer` points into its array, and a
        :class:`tilewise.MappedArray` is the array's tensor map.
    defines : mapping
        The macros.
    shared : int
        The bytes of dynamic shared memory of a block.
    options : sequence of str
        Further options for NVRTC.
    include : sequence of str or Path
        Further folders that ``#include`` searches.
    trusted : bool
        Whether the source may include any file.
    is_ptx : bool
        Whether the source is PTX.
    cooperative : bool
        Whether all blocks are resident at once.
    """

    source: str | Path
    name: str
    grid: int | Sequence[int]
    block: int | Sequence[int]
    args: tuple[Any, ...]
    defines: Mapping[str, Any] = field(default_factory=dict)
    shared: int = 0
    options: Sequence[str] = ()
    include: Sequence[str | Path] = ()
    trusted: bool = False
    is_ptx: bool = False
    cooperative: bool = False

    @property
    def kernel(self) -> Kernel:
        """The kernel with this source, name, macros and options."""
        if self.is_ptx:
            return Kernel.from_ptx(self.source, self.name)
        return Kernel(
            self.source, self.name, self.defines, self.options, include=self.include,
            trusted=self.trusted,
        )  # fmt: skip


def save(folder: Path, cases: Sequence[Case]) -> None:
    """Write ``cases`` to a folder for the process that launches them.

    Raises
    ------
    FileNotFoundError
        If the file of a source does not exist.
    TypeError, ValueError
        If a grid, a block, a macro or an argument is invalid.
    """
    arrays: dict[str, Any] = {}
    keys: dict[int, str] = {}

    def argument(where: str, value: Any) -> dict[str, Any]:
        if value is None or isinstance(value, bool | int | float):
            return {"value": value}
        if isinstance(value, Pointer):
            return {**argument(where, value.array), "offset": value.offset}
        if isinstance(value, MappedArray):
            return {**argument(where, value.array), "map": value.map._replace(place=Place(0))}
        if isinstance(value, np.ndarray):
            key = keys.setdefault(id(value), f"a{len(keys)}")
            try:
                arrays[key] = span(value)  # with the elements between its rows
            except (TypeError, ValueError) as error:
                raise type(error)(f"{where}: {error}") from None
            layout = {"shape": list(value.shape), "strides": list(value.strides)}
            return {"array": key, "dtype": value.dtype.str, **layout}
        if isinstance(value, np.generic) and value.dtype.kind != "V":
            return {"bytes": value.tobytes().hex(), "dtype": value.dtype.str}
        try:
            return {"bytes": memoryview(value).tobytes().hex()}
        except TypeError:
            raise TypeError(
                f"{where}: takes a number, a NumPy array or bytes, not {described(value)}"
            ) from None

    records = []
    for case in cases:
        kernel = case.kernel
        records.append(
            {
                "source": str(kernel.path) if kernel.path else kernel.source,
                "is_path": kernel.path is not None,
                "name": kernel.name,
                "defines": {name: _macro(name, value) for name, value in kernel.defines.items()},
                "grid": dim3(case.grid, "grid"),
                "block": dim3(case.block, "block"),
                "shared": int(case.shared),
                "options": kernel.options,
                "include": [str(Path(each).absolute()) for each in kernel.include],
                "trusted": kernel.trusted,
                "is_ptx": kernel.is_ptx,
                "cooperative": case.cooperative,
                "args": [
                    argument(f"{kernel.name}, argument {index}", value)
                    for index, value in enumerate(case.args)
                ],
            }
        )
    (folder / CASES).write_text(json.dumps(records), encoding="utf-8")
    np.savez(folder / ARRAYS, **arrays)


def _macro(name: str, value: Any) -> str | int | float | bool:
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, str | int | float):
        raise TypeError(f"macro {name} is {value!r}; it takes a number, a string or a bool")
    return plain


def load(folder: Path) -> list[Case]:
    """Return the cases that :func:`save` wrote to ``folder``."""
    found: dict[str, Any] = {}

    def argument(record: Mapping[str, Any]) -> Any:
        if "array" in record:
            key, dtype = record["array"], np.dtype(record["dtype"])
            if key not in found:
                shape, strides = record["shape"], record["strides"]
                data = arrays[key]
                found[key] = (
                    np.ndarray(shape, dtype, data, 0, strides)
                    if data.size
                    else np.empty(shape, dtype)
                )
            if "map" in record:
                fields = [tuple(x) if isinstance(x, list) else x for x in record["map"]]
                return MappedArray(found[key], TensorMap._make([Place(0), *fields[1:]]))
            return Pointer(found[key], record["offset"]) if "offset" in record else found[key]
        if "bytes" in record:
            data = bytes.fromhex(record["bytes"])
            return np.frombuffer(data, record["dtype"])[0] if "dtype" in record else data
        return record["value"]

    records = json.loads((folder / CASES).read_text(encoding="utf-8"))
    with np.load(folder / ARRAYS) as arrays:
        return [
            Case(
                Path(record["source"]) if record["is_path"] else record["source"],
                record["name"],
                tuple(record["grid"]),
                tuple(record["block"]),
                tuple(map(argument, record["args"])),
                record["defines"],
                record["shared"],
                tuple(record["options"]),
                tuple(record["include"]),
                record["trusted"],
                record["is_ptx"],
                record["cooperative"],
            )
            for record in records
        ]


def main(folder: Path) -> int:
    """Launch every case on the GPU, and write the results.

    Returns
    -------
    int
        The exit code: 0, or 1 if something can't be launched.
    """
    name = ""
    outcome: dict[str, Any]
    (folder / OUTCOME).unlink(missing_ok=True)
    try:
        cases = load(folder)
        gpu = get_device("gpu")
        symbols = []
        for case in cases:  # all of them first, so that an error in compilation comes early
            name = case.name
            symbols.append(case.kernel.compile(gpu.arch).symbol)
        for case in cases:
            name = case.name
            case.kernel.launch(
                case.grid, case.block, case.args, case.shared, gpu, cooperative=case.cooperative
            )
        outcome = {"gpu": gpu.description, "symbols": symbols}
    except (TilewiseError, MemoryError, OSError, TypeError, ValueError) as error:
        where = "" if name in str(error) else f"{name}: "
        outcome = {"error": type(error).__name__, "message": f"{where}{error}"}
    write_whole(folder / OUTCOME, json.dumps(outcome).encode())
    return int("error" in outcome)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
