"""Print the occupancy, and tile sizes side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tilewise.cli.show.console import console, first_error, within
from tilewise.cli.usage import with_options
from tilewise.lens.tiles import Tile
from tilewise.shown import extents, number, plural

_PLACES = (15, 9, 23)  # of the counts of blocks, phases and bytes; longer ones are rounded


def occupancy(document: Mapping[str, Any]) -> None:
    """Print a row for each architecture.

    Parameters
    ----------
    document : mapping
        The output of ``tilewise occupancy --json``.
    """
    out = console()
    x, y, z = document["block"]
    line = f": blocks of {extents((x, y, z))} = {plural(document['threads'], 'thread')}"
    if document["dynamic_shared_bytes"]:
        line += f", {plural(document['dynamic_shared_bytes'], 'byte')} of dynamic shared memory"
    if document["dtype"] is not None:
        line += f", {document['dtype']}"
    if document["tile"] is not None:
        line += f", tile {document['tile']}"
    out.print(Text.assemble((document["kernel"], "bold"), line))
    if document["block_from"]:
        out.print(f"the block is that of {document['block_from']}", markup=False)
    out.print()
    table = _table("", "registers\na thread", "shared bytes\na block", "\nblocks", "\nwarps",
                   "\nshare")  # fmt: skip
    table.add_column("\nlimited by", overflow="fold")
    for row in document["rows"]:
        table.add_row(
            row["arch"],
            number(row["registers"]),
            number(row["shared"]),
            number(row["blocks"]),
            f"{row['warps']} of {row['max_warps']}",
            f"{row['share']:.0%}",
            ", ".join(row["limits"]),
        )
    out.print(table)
    out.print()
    out.print("blocks, warps: resident at once, a multiprocessor.")
    if any(row["blocks"] == 0 for row in document["rows"]):
        out.print("0 blocks: the kernel can't be launched so.")
    reasons: dict[str, list[str]] = {}
    for left in document["left_out"]:
        why = " ".join(dict.fromkeys((left["why"].partition("\n")[0], first_error(left["why"]))))
        why = why.replace(f", and this is {left['arch']}", "")  # the rest is the same for each
        reasons.setdefault(why, []).append(left["arch"])
    for why, archs in reasons.items():
        verb = "are" if len(archs) > 1 else "is"
        out.print(Text(f"{', '.join(archs)} {verb} left out: {why}"))
    for note in document["notes"]:
        out.print(f"note: {with_options(note)}", markup=False)


def tiles(rows: Sequence[Tile]) -> None:
    """Print what a phase does, what the product takes, and what a multiprocessor holds."""
    out = console()
    first = rows[0]
    m, n, k = first.m, first.n, first.k
    out.print(
        f"tiles: C = A·B, m = {m:,}, n = {n:,}, k = {k:,}, {first.dtype}",
        style="bold",
    )
    out.print()
    _phases(rows)
    out.print()
    _product(rows)
    out.print()
    _residents(rows)
    for row in rows:
        if row.misfit:
            out.print(f"no launch: {row.misfit}")
    out.print()
    out.print(
        "sums: those that a thread keeps in registers. loads: elements from global memory. FLOPs: "
        "a multiply-add is two. bytes loaded: by all blocks, and nothing outside the matrices; "
        "with no tiles each thread reads its own row of A and column of B, "
        f"{number(first.untiled_bytes)} bytes in all."
    )
    held = next((row.occupancy for row in rows if row.occupancy is not None), None)
    if held is not None and held.registers:
        out.print(f"Every tile is given {held.registers} registers a thread.")
    else:
        out.print(
            "Registers, which may allow fewer blocks, are left out: how many a thread takes, the "
            "compiler says (tilewise occupancy)."
        )


def _phases(rows: Sequence[Tile]) -> None:
    table = _table("a block,\na phase", "\nthreads", "sums\na thread", "shared\nbytes", "\nloads",
                   "multiply-\nadds", "\nFLOPs", "FLOPs\na load")  # fmt: skip
    for row in rows:
        shape = row.shape
        counts = (shape.threads, shape.accumulators, row.shared_bytes, shape.loads,
                  shape.multiply_adds, shape.operations)  # fmt: skip
        table.add_row(shape.name, *map(number, counts), f"{shape.operations_a_load:.4g}")
    console().print(table)


def _product(rows: Sequence[Tile]) -> None:
    table = _table("the product", "blocks", "phases", "bytes loaded", "of no tiles")
    for row in rows:
        counts = (row.blocks, row.phases, row.traffic_bytes)
        share = f"1/{1 / row.traffic_ratio:.4g}"
        cells = map(within, _PLACES, counts)
        table.add_row(row.shape.name, *cells, share)
    console().print(table)


def _residents(rows: Sequence[Tile]) -> None:
    held = next((row.occupancy for row in rows if row.occupancy is not None), None)
    table = _table("a multiprocessor" + ("" if held is None else f" ({held.arch})"), "blocks",
                   "threads", "share")  # fmt: skip
    table.add_column("limited by", overflow="fold")
    for row in rows:
        found = row.occupancy
        if found is None:
            table.add_row(row.shape.name, "-", "-", "-", "no launch")
            continue
        counts = map(number, (found.blocks, found.resident_threads))
        table.add_row(row.shape.name, *counts, f"{found.share:.0%}", ", ".join(found.limits))
    console().print(table)


def _table(first: str, *headings: str) -> Table:
    """Return a table whose first column names the row, and whose others are numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")
    return table
