"""The process that Nsight Compute watches: it launches each case once, in order, and nothing else.

``python -m tilewise.lens.nsight_child FOLDER`` reads the cases that :func:`save` wrote there, and
writes beside them what came of it.
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
        CUDA C++ or PTX, or the path of a file with it, as :class:`tilewise.Kernel` takes it.
    name : str
        The kernel's name.
    grid, block : int or sequence of ints
        Blocks a grid and threads a block, x first.
    args : tuple
        One a parameter: numbers, NumPy arrays, and for a structure anything with the buffer
        protocol. An array that is given twice is one on the GPU too; views of one array are two.
        A :class:`tilewise.Pointer` points into its array, and a :class:`tilewise.MappedArray` is
        the array's tensor map.
    defines : mapping
        Macros.
    shared : int
        Dynamic shared memory a block, bytes.
    options : sequence of str
        More options for NVRTC.
    include : sequence of str or Path
        More folders that ``#include`` searches.
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
        """Of this source, name, macros and options."""
        if self.is_ptx:
            return Kernel.from_ptx(self.source, self.name)
        return Kernel(
            self.source, self.name, self.defines, self.options, include=self.include,
            trusted=self.trusted,
        )  # fmt: skip


def save(folder: Path, cases: Sequence[Case]) -> None:
    """Write ``cases`` for the process that launches them.

    Raises
    ------
    FileNotFoundError
        If a source's file is not there.
    TypeError, ValueError
        If a grid, a block, a macro or an argument is none.
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
                arrays[key] = span(value)  # with what lies between its rows
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
    """The cases that :func:`save` wrote to ``folder``."""
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
    """Launch every case on the GPU, and write what came of it.

    Returns
    -------
    int
        The exit code: 0, or 1 where something can't be launched.
    """
    name = ""
    outcome: dict[str, Any]
    (folder / OUTCOME).unlink(missing_ok=True)
    try:
        cases = load(folder)
        gpu = get_device("gpu")
        symbols = []
        for case in cases:  # all of them first: what does not compile should not wait
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
