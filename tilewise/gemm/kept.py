"""Choices that were measured to be faster than the planner's, kept on disk.

:func:`tilewise.tune` stores them, and the planner finds them again by everything that decides: the
GPU, the product (but for its addresses), and the sources of the kernel and of the model.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from tilewise.compiler import cache as compiler_cache
from tilewise.gemm.chip import Chip
from tilewise.gemm.product import Product

FORMAT = 2  # raise it when the format of the files changes
# The folders of the sources by which a choice is made, and of the kernels that it is for.
_SOURCES = ("gemm", "kernels/gemm", "kernels/ptx")


def find(product: Product, chip: Chip) -> tuple[str, dict[str, Any]] | None:
    """Return the family and the choice that are kept for a product.

    Return None if there is none, or if its file is damaged.
    """
    names = _names()
    if not names:
        return None
    path = _path(product, chip)
    if path is None or path.name not in names:
        return None
    try:
        entry = json.loads(path.read_bytes())
        if entry["check"] != _check(entry["family"], entry["choice"]):
            return None
        return str(entry["family"]), dict(entry["choice"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def keep(
    product: Product,
    chip: Chip,
    family: str,
    choice: Mapping[str, Any],
    measured: Mapping[str, Any],
) -> Path | None:
    """Keep a choice for a product in place of any earlier one.

    Parameters
    ----------
    product : Product
    chip : Chip
    family : str
        The family's name.
    choice : mapping
        The choice of the family's offer.
    measured : mapping
        What was measured, as JSON values, for people who open the file.

    Returns
    -------
    Path or None
        The file, written completely; None if it can't be written.
    """
    path = _path(product, chip)
    if path is None:
        return None
    entry = {
        "chip": asdict(chip),
        "product": _decisive(product).to_dict(),
        "family": family,
        "choice": dict(choice),
        "check": _check(family, choice),
        "measured": dict(measured),
    }
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Each process writes a file of its own, so that the last one to finish replaces it
        # completely.
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            part = Path(file.name)
            file.write(json.dumps(entry, indent=1).encode() + b"\n")
        part.replace(path)
        _look_again()
    except OSError:
        if part is not None:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        return None
    return path


def forget(product: Product, chip: Chip) -> None:
    """Remove the choice that is kept for a product."""
    path = _path(product, chip)
    if path is not None:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        _look_again()


_SETTLED = 2_000_000_000  # nanoseconds, after which the folder's time shows any later change
_UNSEEN = 0.01  # seconds for which another process's change of the folder may not be seen
_listed: dict[str, tuple[int, frozenset[str]]] = {}
_lately: dict[str, tuple[float, frozenset[str]]] = {}
_now = time.monotonic


def _names() -> frozenset[str]:
    """Return the names of the kept files; the folder is listed again when it has changed."""
    folder = _folder()
    if folder is None:
        return frozenset()
    at, now = str(folder), _now()
    # A new shape is planned in a few hundred microseconds, of which a call of the system may take
    # twenty.
    lately = _lately
    seen, names = lately.get(at, (-math.inf, frozenset()))
    if not 0 <= now - seen < _UNSEEN:
        names = _names_in(at)
        lately.clear()
        lately[at] = now, names
    return names


def _look_again() -> None:
    """List the folder anew when it is asked for: this process has changed it.

    A thread that was listing it meanwhile stores what it found in the dict that was there before.
    """
    global _lately
    _lately = {}


def _names_in(at: str) -> frozenset[str]:
    try:
        changed = os.stat(at).st_mtime_ns  # noqa: PTH116
        known = _listed.get(at)
        if known is not None and known[0] == changed:
            return known[1]
        names = frozenset(os.listdir(at))  # noqa: PTH208
    except OSError:
        return frozenset()
    if time.time_ns() - changed > _SETTLED:
        _listed[at] = changed, names
    return names


def _folder() -> Path | None:
    place = compiler_cache.directory()
    return None if place is None else _inside(place)


@cache
def _inside(place: Path) -> Path:
    return place / "tuned"


def _path(product: Product, chip: Chip) -> Path | None:
    folder = _folder()
    if folder is None:
        return None
    parts = [FORMAT, _sources(), asdict(chip), _decisive(product).to_dict()]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return folder / f"{digest[:32]}.json"


def _decisive(product: Product) -> Product:
    """Return the product without what does not change its launches: alpha's and beta's values."""
    reads_c = product.beta != 0
    return product._replace(alpha=1.0, beta=float(reads_c), c=product.c if reads_c else None)


def _check(family: str, choice: Mapping[str, Any]) -> str:
    fields = [family, dict(choice)]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


@cache
def _sources() -> str:
    """Return the digest of all sources that a kept choice was measured with."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in _SOURCES:
        for file in sorted((root / name).rglob("*")):
            if file.suffix in (".py", ".json", ".cu", ".cuh"):
                digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
