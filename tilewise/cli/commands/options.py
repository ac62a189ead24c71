"""The exit codes, options and JSON output that commands share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tilewise import devices

OF_M, OF_N, OF_K = "Rows of A and C", "Columns of B and C", "Columns of A, rows of B"
RIGHT, WRONG, BAD, INTERRUPTED = 0, 1, 2, 130


class Real(StrEnum):
    float32 = "float32"
    float64 = "float64"


class Dtype(StrEnum):
    bfloat16 = "bfloat16"
    float16 = "float16"
    float32 = "float32"
    float64 = "float64"


class Layout(StrEnum):
    NN = "NN"
    NT = "NT"
    TN = "TN"
    TT = "TT"


class InGroups(StrEnum):
    m = "m"
    k = "k"


class Suite(StrEnum):
    square = "square"
    llm = "llm"
    odd = "odd"
    thin = "thin"
    all = "all"


class Rival(StrEnum):
    torch = "torch"


class Place(StrEnum):
    auto = "auto"
    gpu = "gpu"
    emulator = "emulator"


def gpus(incomplete: str) -> list[str]:
    """Return the GPUs that are known by their data sheets, as "a100" or "rtx4090", for a shell."""
    from tilewise.devices.names import words
    from tilewise.gemm.chip import KNOWN

    found = []
    for name in KNOWN:
        number = next(word for word in words(name) if any(map(str.isdigit, word)))
        found.append("rtx" * ("rtx" in words(name)) + number)
    return [name for name in found if name.startswith(incomplete)]


def rungs(incomplete: str) -> list[str]:
    """Return the ladder's kernels that begin so, for a shell that completes the word."""
    from tilewise.ladder.rungs import RUNGS

    return [rung.name for rung in RUNGS if rung.name.startswith(incomplete)]


Target = Annotated[
    str,
    typer.Argument(
        metavar="RUNG|FILE.cu:NAME|FILE.ptx:NAME",
        help="A rung of the ladder, or any kernel of a file.",
        autocompletion=rungs,
    ),
]
# Commands that only compute take empty matrices, as NumPy does; those that count, watch or time a
# launch need one.
EmptyM = Annotated[int | None, typer.Option("-m", metavar="M", help=f"{OF_M}; may be 0.")]
EmptyN = Annotated[int | None, typer.Option("-n", metavar="N", help=f"{OF_N}; may be 0.")]
EmptyK = Annotated[int | None, typer.Option("-k", metavar="K", help=f"{OF_K}; may be 0.")]
M = Annotated[int | None, typer.Option("-m", metavar="M", help=f"{OF_M}; at least 1.")]
N = Annotated[int | None, typer.Option("-n", metavar="N", help=f"{OF_N}; at least 1.")]
K = Annotated[int | None, typer.Option("-k", metavar="K", help=f"{OF_K}; at least 1.")]
RequiredM = Annotated[int, typer.Option("-m", metavar="M", help=f"{OF_M}; at least 1.")]
RequiredN = Annotated[int, typer.Option("-n", metavar="N", help=f"{OF_N}; at least 1.")]
RequiredK = Annotated[int, typer.Option("-k", metavar="K", help=f"{OF_K}; at least 1.")]
Stored = Annotated[Layout, typer.Option(help="A's letter and B's: T is stored transposed.")]
Tile = Annotated[
    int | None,
    typer.Option(
        help="Edge of a block's tile: 2 to 32, or one that the rung takes (`tilewise kernels`). By "
        "default the rung's own."
    ),
]
Device = Annotated[Place, typer.Option(help="auto is the GPU where there is one.")]
Arch = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="ARCH",
        help="The architecture that the emulator stands for, as sm_80. By default sm_90a.",
    ),
]
OwnDtype = Annotated[
    Dtype | None,
    typer.Option(
        "--dtype",
        help="By default float32, or of a rung by tensor cores float16, its first.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document for machines.")]


def device_of(place: Place, arch: str | None) -> devices.Device:
    """Return the device of ``--device``, or where there is ``--arch`` the emulator of that.

    Raises
    ------
    ValueError
        If NVRTC does not know the architecture, or it is a GPU's that is asked for.
    DeviceUnavailableError
        If a GPU was asked for and there is none.
    """
    from tilewise.devices import get_device
    from tilewise.devices.emulated import emulator

    if arch is None:
        return get_device(place.value)
    if place is Place.gpu:
        raise ValueError(
            f"--arch is {arch}, and --device is gpu: a GPU runs code for its own architecture; "
            "give --device emulator, or leave --arch out"
        )
    return emulator(arch)


def print_json(document: Mapping[str, Any]) -> None:
    """Print ``document`` to standard output; NaN and infinity, which JSON lacks, become null."""
    print(json.dumps(plain(document), indent=2, allow_nan=False))


def command_line(command: str, options: Mapping[str, object]) -> list[str]:
    """Return the command line of a command with these options, for its record.

    An option that is None is left out, and one that is a tuple is given once for each element.
    """
    words = ["tilewise", command]
    for option, value in options.items():
        for each in value if isinstance(value, tuple) else (value,):
            if each is not None:
                words += [option, f"{each:g}" if isinstance(each, float) else str(each)]
    return words


def check_outputs(*paths: Path | None) -> None:
    """Raise an error if one of ``paths`` can't be written; None and -, standard output, can."""
    from tilewise.ladder.matrix_files import check_target

    for path in paths:
        if path is not None and str(path) != "-":
            check_target(path)


def write_record(document: Mapping[str, Any], path: Path) -> None:
    """Write ``document`` to ``path`` as JSON, whole or not at all, and say so."""
    from tilewise.provenance import write_whole

    text = json.dumps(plain(document), indent=1, ensure_ascii=False)
    write_whole(path, text.encode() + b"\n")
    print(f"{path}: written")


def plain(value: Any) -> Any:
    """Return ``value`` as JSON can represent it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str):  # a NumPy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
