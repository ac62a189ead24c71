"""Print the result of a product of matrices in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from tilewise.cli.show.console import console, gflops, named_rows, verdict
from tilewise.shown import duration, plural
from tilewise.sizes import shown

if TYPE_CHECKING:
    from tilewise.files.result import FileProduct


def multiplied(found: FileProduct) -> None:
    """Print the product, its tiles, the bytes moved beside the least, its time and check."""
    out = console()
    is_whole = "written" if found.correct else "not written"
    out.print(
        f"{found.out}: {is_whole}, m = {found.m:,}, n = {found.n:,}, k = {found.k:,}, "
        f"{found.dtype}",
        style="bold",
    )
    pieces = f", k in {found.pieces:,} pieces" if found.pieces > 1 else ", k undivided"
    resumed = f"; done before: {found.resumed:,}" if found.resumed else ""
    near = f", {found.bytes_moved / found.bound:.2f} of it" if found.bound else ""
    rows: list[tuple[str, Text | str]] = [
        ("tiles", f"{plural(found.tiles, 'tile')} of {found.block_m:,} x {found.block_n:,}, "
                  f"{found.block_k:,} deep{pieces}{resumed}"),
        ("memory", f"{shown(found.memory)} of {shown(found.budget)}"),
        ("moved", f"{shown(found.bytes_read)} read, {shown(found.bytes_written)} written"),
        ("bound", f"any order moves {shown(found.bound)} at least; the plan moves "
                  f"{shown(found.bytes_moved)}{near}"),
        ("time", _time(found)),
    ]  # fmt: skip
    if found.check is not None:
        told = Text.assemble(verdict(found.correct), f" in a sample, {found.check.details}")
        rows.append(("check", told))
        rows += [("not finite", found.check.remark)] * bool(found.check.remark)
    rows += [("note", note) for note in found.notes]
    out.print(named_rows(rows))


def _time(found: FileProduct) -> str:
    place = "on the GPU" if found.device == "gpu" else "on the host's cores"
    flops = "" if found.resumed or not found.m * found.n * found.k else (
        f", {gflops(found.m, found.n, found.k, found.seconds)} GFLOP/s with reading and writing"
    )  # fmt: skip
    return f"{duration(found.seconds)} {place}{flops}"
