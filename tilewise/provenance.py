"""The provenance of a result that is kept: machine, versions, command and date."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewise import __version__
from tilewise.compiler.ahead import cores
from tilewise.devices import get_device
from tilewise.errors import DeviceUnavailableError

_PACKAGES = (
    "numpy", "cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "numba", "numba-cuda", "torch",
    "triton", "nvidia-cublas",
)  # fmt: skip
_BEGUN = time.monotonic()  # in seconds, when a command imports tilewise


def provenance(command: Sequence[str] = ()) -> dict[str, Any]:
    """Return the provenance that is stored with a result's JSON.

    It has the date, the command, the seconds since the command began, the machine and the versions.

    Parameters
    ----------
    command : sequence of str
        The words of the command line; by default those of the process.
    """
    words = command or [Path(sys.executable).name, *sys.argv]
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(_without_folders(words)),
        "elapsed_seconds": round(time.monotonic() - _BEGUN, 1),
        "machine": {
            "processor": _processor(),
            "cores": cores(),
            "system": platform.platform(),
            "gpu": _gpu(),
            "driver": _driver(),
        },
        "versions": _versions(),
    }


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a result with its provenance, completely or not at all."""
    write_whole(path, json.dumps({**provenance(), **record}, indent=1).encode() + b"\n")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file such that at no time it exists in part.

    Raises
    ------
    OSError
        If it can't be written; then nothing has changed.
    """
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        # The error of a full disk does not name the file.
        raise type(error)(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def _without_folders(words: Sequence[str]) -> list[str]:
    """Reduce absolute paths, also after "NAME=", to their last part: folders are the machine's."""

    def without(word: str) -> str:
        name, equals, path = word.rpartition("=")
        return name + equals + Path(path).name if Path(path).is_absolute() else word

    return [without(word) for word in words]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "tilewise": __version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpu() -> str | None:
    try:
        return get_device("gpu").description
    except DeviceUnavailableError:
        return None


def _driver() -> str | None:
    listing = Path("/proc/driver/nvidia/version")
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", listing.read_text()) if listing.exists() else None
    return found[0] if found else None
