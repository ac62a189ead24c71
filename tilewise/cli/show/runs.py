"""Print a product by one kernel, the whole ladder, or the demonstration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tilewise.cli.show.console import (
    console,
    gflops,
    named_rows,
    verdict,
    verdict_rows,
)
from tilewise.cli.told import error
from tilewise.cli.usage import with_options
from tilewise.ladder.geometry import listed
from tilewise.launch import device_name, in_groups
from tilewise.shown import duration, extents, number, plural, value

if TYPE_CHECKING:
    from tilewise.counted import Counters
    from tilewise.ladder.demo import Demonstration
    from tilewise.ladder.run import RunResult
    from tilewise.ladder.rungs import Rung
    from tilewise.launch import LaunchReport


def run_result(result: RunResult) -> None:
    """Print one product: the problem, the check, the time, the resources, the counters."""
    out = console()
    out.print(_title(result))
    report = result.report
    rows: list[tuple[str, Text | str]] = []
    if report is not None:
        rows.append(("launch", launch_line(report)))
    rows += verdict_rows(result.verdict)
    if report is not None:
        rows.append(("time", time_line(result, report)))
        rows.append(("resources", resources_line(report)))
    else:
        rows.append(("launch", "none: C has no elements"))
    out.print(named_rows(rows))
    if report is not None:
        if report.counters is not None:
            out.print()
            out.print(counters_table(report.counters))
            out.print(counters_line(report.counters))
        report_rest(report)


def _title(result: RunResult) -> Text:
    m, n, k = result.m, result.n, result.k
    formula = "C = A·B"
    if result.alpha != 1 or result.beta != 0:
        alpha = "" if result.alpha == 1 else f"{result.alpha:g}·"
        formula = f"C = {alpha}A·B" + (f" + {result.beta:g}·C" if result.beta else "")
    tile = "" if result.tile is None else f", tile {result.tile}"
    return Text.assemble(
        (result.kernel, "bold"),
        f": {formula}, m = {m:,}, n = {n:,}, k = {k:,}, {result.dtype}{tile}",
    )


def launch_line(report: LaunchReport) -> str:
    launch = report.launch
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    return (
        f"grid {extents(launch.grid)} = {plural(blocks, 'block')} of "
        f"{extents(launch.block)} = {plural(threads, 'thread')}, "
        f"on {device_name(report.device, report.arch)}"
    )


def time_line(result: RunResult, report: LaunchReport) -> str:
    if report.device == "emulator":
        return f"{duration(report.seconds)} of emulation, which says nothing about a GPU's time"
    rate = gflops(result.m, result.n, result.k, report.seconds)
    return f"{duration(report.seconds)}, {rate} GFLOP/s"


def resources_line(report: LaunchReport) -> str:
    resources = report.resources
    if resources.missing:
        return resources._summary()
    shared = f"{plural(resources.shared_bytes, 'byte')} shared memory a block"
    if report.launch.shared:
        shared += f" and {report.launch.shared:,} dynamic"
    spills = (
        f"{plural(resources.spill_bytes, 'byte')} of spills"
        if resources.spill_bytes
        else "no spills"
    )
    return f"{plural(resources.registers, 'register')} a thread, {shared}, {spills}"


def counters_table(counters: Counters) -> Table:
    """Return requests, sectors and bank conflicts by memory; rare kinds only if they are used."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("counters")
    for heading in ("requests", "sectors", "bank conflicts"):
        table.add_column(heading, justify="right")
    for name, requests, *others in counters.by_memory():
        table.add_row(name, number(requests), *("" if x is None else number(x) for x in others))
    return table


def counters_line(counters: Counters) -> str:
    return (
        f"{number(counters.flops)} floating-point operations, "
        f"{number(counters.barriers)} barriers, "
        f"{number(counters.divergent_branches)} divergent branches"
    )


def report_rest(report: LaunchReport) -> None:
    """Print findings, notes and what the kernel printed."""
    out = console()
    for finding in in_groups(report.findings):
        out.print(Text.assemble(("found: ", "bold red"), finding))
    if report.counters is not None and report.counted_as != "machine code":
        out.print(f"counted as: {report.counted_as}")
    for note in report.notes:
        out.print(f"note: {with_options(note)}", markup=False)
    if report.output:
        out.print("the kernel printed:", style="bold")
        out.print(report.output.rstrip("\n"), markup=False)


def ladder(document: Mapping[str, Any]) -> None:
    """Print a row for each rung, then what each rung teaches.

    Parameters
    ----------
    document : mapping
        The output of ``tilewise ladder --json``.
    """
    out = console()
    m, n, k, rows = document["m"], document["n"], document["k"], document["rungs"]
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    out.print(
        f"ladder: C = A·B, m = {m:,}, n = {n:,}, k = {k:,}, {dtypes[0]}, "
        f"on {device_name(document['device'], document['arch'])}",
        style="bold",
    )
    for note in document["notes"]:
        out.print(note)
    if not m or not n:
        return
    out.print()
    counted = document["device"] == "emulator"
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("rung", no_wrap=True)
    table.add_column("check", no_wrap=True)
    headings = (
        ("load\nrequests", "load\nsectors", "bank\nconflicts") if counted else ("time", "GFLOP/s")
    )
    for heading in (*headings, "registers\na thread", "shared\nbytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = _counter_cells(row) if counted else _time_cells(row)
        resources = row.get("resources")
        if resources:
            shared = resources["shared_bytes"] + row["dynamic_shared_bytes"]
            cells += [value(resources["registers"]), number(shared)]
        table.add_row(f"{row['rung']} {row['kernel']}", verdict(row["correct"]), *cells)
    out.print(table)
    notes = [
        f"{row['kernel']} ran at m = {row['m']:,}, n = {row['n']:,}, k = {row['k']:,}: "
        f"{row['size_note']}"
        for row in rows
        if row["size_note"]
    ]
    notes += [
        f"{row['kernel']} ran with tiles of {row['tile']}: {row['tile_note']}"
        for row in rows
        if row["tile_note"]
    ]
    for dtype in dtypes[1:]:
        names = [row["kernel"] for row in rows if row["dtype"] == dtype]
        notes.append(f"{', '.join(names)} ran in {dtype}, with sums in float32")
    if notes:
        out.print()
        out.print("\n".join(notes), markup=False)
    out.print()
    out.print(named_rows([(row["kernel"], row["lesson"]) for row in rows]))
    for row in rows:
        if "error" in row:
            error(f"{row['kernel']}: {row['error']}")


def kernels(rungs: Sequence[Rung]) -> None:
    """Print each rung's name and tiles, what it does, and what running it shows."""
    out = console()
    for rung in rungs:
        tiles = "no tiles"
        if rung.tiles:
            usual = "by the size of C" if rung.tile_by_size else f"{rung.default_tile} by default"
            tiles = f"tiles {listed(rung.tiles)}; {usual}"
        if rung.needs:
            tiles += f"; {' and '.join(rung.dtypes)}, on {rung.needs}"
            tiles += "" if rung.needs[-1].isalpha() else " and later"
        out.print(Text.assemble((f"{rung.number} {rung.name}", "bold"), f": {tiles}"))
        out.print(Padding(rung.idea, (0, 0, 0, 4), expand=False), markup=False)
        out.print(Padding(rung.lesson, (0, 0, 0, 4), expand=False), markup=False)


def _counter_cells(row: Mapping[str, Any]) -> list[str]:
    counters = row.get("counters")
    if not counters:
        return [""] * 3
    conflicts = counters["shared_load_bank_conflicts"] + counters["shared_store_bank_conflicts"]
    loads = counters["global_load_requests"], counters["global_load_sectors"]
    return [number(count) for count in (*loads, conflicts)]


def _time_cells(row: Mapping[str, Any]) -> list[str]:
    if not row.get("seconds"):
        return ["", ""]
    rate = gflops(row["m"], row["n"], row["k"], row["seconds"])
    return [duration(row["seconds"]), rate]


def demo(found: Demonstration) -> None:
    """Print both pictures, what was done, its check, and what the tile saved."""
    from tilewise.ladder.demo import as_text

    out = console()
    tiled, coalesced = found.tiled, found.coalesced
    place = device_name(tiled.device, tiled.arch)
    out.print(f"C = A·B by the kernel `tiled`, on {place}", style="bold")
    out.print(
        "A is a picture of 128 x 128 elements. B mixes its columns: column j of C is the mean "
        "of A's columns around column 127 - j, weighted by a Gaussian. So C is the picture "
        "mirrored, and blurred along its rows."
    )
    out.print()
    lit, mixed = as_text(found.before), as_text(found.after)
    if out.width >= 4 + len(lit[0]) + 4 + len(mixed[0]):
        out.print(f"  {'A':<36}C")
        for left, right in zip(lit, mixed, strict=True):
            out.print(f"  {left}    {right}", markup=False)
    else:
        for name, picture in (("A", lit), ("C", mixed)):
            out.print(f"  {name}")
            out.print("\n".join(f"  {line}" for line in picture), markup=False)
    out.print()
    if tiled.report is None or coalesced.report is None:
        return
    out.print(
        named_rows(
            [
                ("launch", launch_line(tiled.report)),
                *verdict_rows(tiled.verdict),
                ("time", time_line(tiled, tiled.report)),
            ]
        )
    )
    out.print()
    few, many = tiled.report.counters, coalesced.report.counters
    if few is None or many is None:
        out.print("A GPU does not count; `tilewise demo --device emulator` shows the counters.")
        return
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("the same product")
    for heading in ("coalesced", "tiled", "ratio"):
        table.add_column(heading, justify="right")
    for name, before, after in (
        ("global load requests", many.global_load_requests, few.global_load_requests),
        ("global load sectors", many.global_load_sectors, few.global_load_sectors),
        ("shared load requests", many.shared_load_requests, few.shared_load_requests),
        ("shared bank conflicts", _conflicts(many), _conflicts(few)),
        ("barriers", many.barriers, few.barriers),
        ("floating-point operations", many.flops, few.flops),
    ):
        ratio = before / after if after else 0
        table.add_row(name, number(before), number(after), _share(ratio) if ratio > 1 else "")
    out.print(table)
    out.print()
    fewer = many.global_load_requests / few.global_load_requests
    out.print(
        f"What you see: `tiled` copies tiles of A and B, {tiled.tile} x {tiled.tile}, into shared "
        f"memory, and its threads read each element there {tiled.tile} times. So it asks global "
        f"memory {_share(fewer)} as often as `coalesced`, which fetches both factors anew for "
        "every multiply-add. Both compute the same C."
    )


def _share(ratio: float) -> str:
    return f"1/{ratio:.3g}"


def _conflicts(counters: Counters) -> int:
    return counters.shared_bank_conflicts
