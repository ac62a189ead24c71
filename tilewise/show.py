"""Results as text for people: tables of at most 80 columns, units named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from tilewise.devices.emulator import Emulator

if TYPE_CHECKING:
    from tilewise.demo import Demonstration
    from tilewise.devices import Device
    from tilewise.doctor import Diagnosis
    from tilewise.launch import Counters, Dim3, LaunchReport
    from tilewise.run import RunResult
    from tilewise.tune import Tuned

PLACES = {"gpu": "GPU", "emulator": "emulator"}


def console() -> Console:
    """Standard output, without the colouring of numbers that rich does by itself."""
    return Console(highlight=False, soft_wrap=False)


def number(value: float) -> str:
    """A count with thousands separators; anything else with three digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Three digits and the unit that fits."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def extents(sizes: Dim3) -> str:
    """``32 x 32`` for (32, 32, 1)."""
    used = sizes if sizes[2] != 1 else sizes[:2]
    return " x ".join(f"{size:,}" for size in used)


def gflops(m: int, n: int, k: int, seconds: float) -> str:
    """10^9 operations a second, where a multiply-add is two, with at least three digits."""
    rate = 2.0 * m * n * k / seconds / 1e9
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def error(message: str, as_hint: str = "") -> None:
    """``message`` on standard error, unwrapped so that it can be copied."""
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    out.print(Text.assemble(("tilewise: ", "bold red"), message))
    if as_hint:
        out.print(Text(as_hint, style="dim"))


@contextmanager
def progress(total: int | None, what: str) -> Iterator[Callable[[str], None]]:
    """A bar on standard error, only where that is a terminal; call what is given at each step.

    Parameters
    ----------
    total : int or None
        Steps; None where they are not known.
    what : str
        Shown before the first step.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        begun = count()
        yield lambda name: bar.update(task, completed=next(begun), description=name)


@contextmanager
def block_progress(device: Device, what: str) -> Iterator[None]:
    """A bar of the blocks that the emulator has run, where standard error is a terminal."""
    if not isinstance(device, Emulator) or not sys.stderr.isatty():
        with progress(None, what):
            yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        device.progress = lambda done, blocks: bar.update(task, completed=done, total=blocks)
        try:
            yield
        finally:
            device.progress = None


def verdict(correct: bool) -> Text:
    return Text("right", style="green") if correct else Text("WRONG", style="bold red")


def _rows(rows: Sequence[tuple[str, Text | str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    return table


def run_result(result: RunResult) -> None:
    """One product: the problem, the check, the time, the resources, the counters."""
    out = console()
    out.print(_title(result))
    report = result.report
    rows: list[tuple[str, Text | str]] = []
    if report is not None:
        rows.append(("launch", launch_line(report)))
    rows.append(("check", check_line(result)))
    if report is not None:
        rows.append(("time", time_line(result, report)))
        rows.append(("resources", resources_line(report)))
    else:
        rows.append(("launch", "none: C has no elements"))
    out.print(_rows(rows))
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
    tile = "" if result.tile is None else f", TILE {result.tile}"
    return Text.assemble(
        (result.kernel, "bold"),
        f": {formula}, m = {m:,}, n = {n:,}, k = {k:,}, {result.dtype}{tile}",
    )


def launch_line(report: LaunchReport) -> str:
    launch = report.launch
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    return (
        f"grid {extents(launch.grid)} = {_plural(blocks, 'block')} of "
        f"{extents(launch.block)} = {_plural(threads, 'thread')}, on the {PLACES[report.device]}"
    )


def _plural(count: int, thing: str) -> str:
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def check_line(result: RunResult) -> Text:
    check = result.check
    line = Text.assemble(
        verdict(check.correct),
        f" against float64: max error {check.max_error:.3g} of |A||B|, bound {check.bound:.3g}",
    )
    if not check.correct and check.worst is not None:
        line.append(f", worst at C[{', '.join(str(i) for i in check.worst)}]")
    return line


def time_line(result: RunResult, report: LaunchReport) -> str:
    if report.device == "emulator":
        return f"{duration(report.seconds)} of emulation, which says nothing about a GPU's time"
    rate = gflops(result.m, result.n, result.k, report.seconds)
    return f"{duration(report.seconds)}, {rate} GFLOP/s"


def resources_line(report: LaunchReport) -> str:
    resources = report.resources
    shared = f"{resources.shared_bytes:,} bytes shared memory a block"
    if report.launch.shared:
        shared += f" and {report.launch.shared:,} dynamic"
    spills = f"{resources.spill_bytes:,} bytes of spills" if resources.spill_bytes else "no spills"
    return f"{resources.registers} registers a thread, {shared}, {spills}"


def counters_table(counters: Counters) -> Table:
    """Requests, sectors and bank conflicts by memory; atomics and local memory where used."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("counters")
    for heading in ("requests", "sectors", "bank conflicts"):
        table.add_column(heading, justify="right")
    c = counters
    table.add_row("global loads", number(c.global_load_requests), number(c.global_load_sectors))
    table.add_row("global stores", number(c.global_store_requests), number(c.global_store_sectors))
    table.add_row(
        "shared loads", number(c.shared_load_requests), "", number(c.shared_load_bank_conflicts)
    )
    table.add_row(
        "shared stores", number(c.shared_store_requests), "", number(c.shared_store_bank_conflicts)
    )
    if c.global_atomic_requests:
        table.add_row(
            "global atomics", number(c.global_atomic_requests), number(c.global_atomic_sectors)
        )
    for name, requests in (
        ("shared atomics", c.shared_atomic_requests),
        ("local loads", c.local_load_requests),
        ("local stores", c.local_store_requests),
    ):
        if requests:
            table.add_row(name, number(requests))
    return table


def counters_line(counters: Counters) -> str:
    return (
        f"{number(counters.flops)} floating-point operations, "
        f"{number(counters.barriers)} barriers, "
        f"{number(counters.divergent_branches)} divergent branches"
    )


def report_rest(report: LaunchReport) -> None:
    """Findings, notes and what the kernel printed."""
    out = console()
    for finding in report.findings:
        out.print(Text.assemble(("found: ", "bold red"), str(finding)))
    if report.counters is not None and report.counted_as != "machine code":
        out.print(f"counted as: {report.counted_as}")
    for note in report.notes:
        out.print(f"note: {note}", markup=False)
    if report.output:
        out.print("the kernel printed:", style="bold")
        out.print(report.output.rstrip("\n"), markup=False)


def ladder(document: Mapping[str, Any]) -> None:
    """One row a rung, then what each rung teaches.

    Parameters
    ----------
    document : mapping
        What ``tilewise ladder --json`` prints.
    """
    out = console()
    m, n, k, rows = document["m"], document["n"], document["k"], document["rungs"]
    out.print(
        f"ladder: C = A·B, m = {m:,}, n = {n:,}, k = {k:,}, {document['dtype']}, "
        f"on the {PLACES[document['device']]}",
        style="bold",
    )
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
            cells += [number(resources["registers"]), number(resources["shared_bytes"])]
        table.add_row(f"{row['rung']} {row['kernel']}", verdict(row["correct"]), *cells)
    out.print(table)
    notes = [
        f"{row['kernel']} ran at m = {row['m']:,}, n = {row['n']:,}, k = {row['k']:,}: "
        f"{row['size_note']}"
        for row in rows
        if row["size_note"]
    ]
    if notes:
        out.print()
        out.print("\n".join(notes), markup=False)
    out.print()
    out.print(_rows([(row["kernel"], row["lesson"]) for row in rows]))
    for row in rows:
        if "error" in row:
            error(f"{row['kernel']}: {row['error']}")


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


def bench(record: Mapping[str, Any]) -> None:
    """One row a product, then each suite in two figures.

    Parameters
    ----------
    record : mapping
        What ``tilewise bench --json -`` prints.
    """
    out = console()
    flops, rate = record["ceilings"]["tflops"], record["ceilings"]["gigabytes"]
    ceiling = "not known" if flops is None else f"{flops:.0f} TFLOP/s"
    out.print(f"bench: {record['dtype']}, on {record['machine']['gpu']}", style="bold")
    out.print(f"ceilings: tensor cores {ceiling}, memory {rate:,.0f} GB/s")
    out.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("m x n x k", overflow="fold")
    table.add_column("", no_wrap=True)
    for heading in ("ours\nµs", "torch\nµs", "ours\nTFLOP/s", "\nratio", "\nshare"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in record["rows"]:
        table.add_row(row["name"], row["layout"], *_bench_cells(row))
    out.print(table)
    out.print()
    out.print(
        "ratio: torch's time by ours. share: of the speed at the nearer ceiling, c (compute) or m "
        "(memory)."
    )
    out.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("suite")
    for heading in ("products", "mean ratio", "worst"):
        table.add_column(heading, justify="right")
    table.add_column("at")
    for group in record["summaries"]:
        at = f"{group['name']} {group['layout']}"
        figures = f"{group['mean']:.3f}", f"{group['worst']:.3f}"
        table.add_row(group["group"], number(group["products"]), *figures, at)
    out.print(table)
    for row in record["rows"]:
        if not row["correct"]:
            error(f"{row['name']} {row['layout']}: {row.get('failure', 'a wrong result')}")
    for rung in record.get("ladder", ()):
        for point in rung["points"]:
            if not point["correct"]:
                error(f"{rung['kernel']} at {point['n']}: a wrong result")


def _bench_cells(row: Mapping[str, Any]) -> list[Text | str]:
    if "ratio" not in row:
        return [verdict(False)]
    microseconds = [f"{row['seconds'][name] * 1e6:,.1f}" for name in ("ours", "torch")]
    share = "" if row["share"] is None else f"{row['share']:.2f} {row['limit'][0]}"
    return [*microseconds, f"{row['tflops']['ours']:.1f}", f"{row['ratio']:.2f}", share]


def tuned(found: Tuned) -> None:
    """One row a tiling, fastest first, then what was kept."""
    from tilewise.explain import title

    out = console()
    out.print(title(found.product), style="bold")
    out.print(f"on {found.chip.name}, {found.chip.multiprocessors} multiprocessors")
    base = found.chosen_seconds
    if found.rows:
        out.print()
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        for heading in ("µs", "ratio"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("tiling", overflow="fold")
        for row in found.rows:
            mark = " (the model's choice)" if row.tiling == found.chosen else ""
            cells = ["", ""]
            if row.seconds and base:
                cells = [f"{row.seconds * 1e6:,.2f}", f"{base / row.seconds:.3f}"]
            elif not row.correct:
                cells = ["WRONG", ""]
            table.add_row(*cells, f"{row.tiling}{mark}")
        out.print(table)
        out.print()
        out.print("ratio: the model's choice's time by this one's.")
    if found.kept is not None:
        out.print(f"kept, and taken by matmul from now on: {found.kept}")
    if found.note:
        out.print(found.note)


def demo(found: Demonstration) -> None:
    """Both pictures, what was done, its check, and what the tile saved."""
    from tilewise.demo import as_text

    out = console()
    tiled, coalesced = found.tiled, found.coalesced
    out.print(f"C = A·B by the kernel `tiled`, on the {PLACES[tiled.device]}", style="bold")
    out.print(
        "A is a picture of 128 x 128 elements. B mixes its columns: column j of C is the mean "
        "of A's columns around column 127 - j, weighted by a Gaussian. So C is the picture "
        "mirrored, and blurred along its rows."
    )
    out.print()
    out.print(f"  {'A':<36}C")
    for left, right in zip(as_text(found.before), as_text(found.after), strict=True):
        out.print(f"  {left}    {right}", markup=False)
    out.print()
    if tiled.report is None or coalesced.report is None:
        return
    out.print(
        _rows(
            [
                ("launch", launch_line(tiled.report)),
                ("check", check_line(tiled)),
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
    return counters.shared_load_bank_conflicts + counters.shared_store_bank_conflicts


def diagnosis(found: Diagnosis) -> None:
    """A line an item, then the verdict."""
    out = console()
    marks = {
        "ok": Text("ok", style="green"),
        "absent": Text("absent", style="yellow"),
        "missing": Text("MISSING", style="bold red"),
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in found.items:
        table.add_row(marks[item.state], Text(item.name, style="bold"), item.detail)
    out.print(table)
    out.print()
    if found.ok:
        out.print("tilewise works here.")
    else:
        names = ", ".join(item.name for item in found.items if item.state == "missing")
        out.print(Text(f"tilewise does not work here before this is mended: {names}."))
