"""Where a figure comes from: machine, versions, command and date, for each result that is kept."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

from tilewise.devices import get_device
from tilewise.errors import DeviceUnavailableError

_PACKAGES = (
    "tilewise", "numpy", "cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "numba", "numba-cuda",
    "torch",
)  # fmt: skip


def provenance() -> dict[str, Any]:
    """What stands on top of a result's JSON."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(_without_folders([Path(sys.executable).name, *sys.argv])),
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "system": platform.platform(),
            "gpu": _gpu(),
        },
        "versions": _versions(),
    }


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a result with its provenance, whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({**provenance(), **record}, indent=1) + "\n")
    part.replace(path)


def _without_folders(words: list[str]) -> list[str]:
    """Absolute paths by their last part: the folders are the machine's own."""
    return [Path(word).name if Path(word).is_absolute() else word for word in words]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
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
