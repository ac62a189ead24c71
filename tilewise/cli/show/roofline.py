"""A GPU's ceilings, and kernels below them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from tilewise.cli.show.console import console, giga, labels, verdict
from tilewise.cli.told import error
from tilewise.lens.figures import si
from tilewise.lens.roofline import LIMITS, TENSOR_CORES, Ceilings
from tilewise.shown import duration, extents, number

_HEADINGS = {"shared memory": "shared\nmemory", TENSOR_CORES: "tensor\ncores"}
_UNITS = {
    "dram": ("DRAM", "B/s"),
    "l2": ("L2", "B/s"),
    "shared": ("shared memory", "B/s"),
    "issue": ("issue", " warp instructions/s"),
    "float32": ("float32", "FLOP/s"),
    "float64": ("float64", "FLOP/s"),
}


def roofline(document: Mapping[str, Any]) -> None:
    """Print what each kernel does and what sets its least time, then each ceiling's time.

    Parameters
    ----------
    document : mapping
        The output of ``tilewise roofline --json``.
    """
    out = console()
    found = Ceilings(**document["ceilings"])
    line = f": {what_is_done(document)}, {dtypes_of(document)}, on {found.name}"
    out.print(Text.assemble(("roofline", "bold"), line))
    out.print(f"ceilings: {_ceilings_line(found, document)}")
    out.print(f"from      {found.source.partition(';')[0]}", markup=False)
    out.print()
    table = _table("\nkernel", "\nFLOPs", "DRAM\nbytes", "FLOPs\na byte")
    table.add_column("\nbound by")
    for heading in ("best\ntime", "GFLOP/s\nat best"):
        table.add_column(heading, justify="right", no_wrap=True)
    names = _names(document)
    for row, name in zip(document["kernels"], names, strict=True):
        work, intensity = row["work"], row["intensity"]
        table.add_row(
            name,
            si(work["flops"], ""),
            si(work["dram_bytes"], "B"),
            "" if intensity is None else f"{intensity:.3g}",
            row["binding"] if row["best_seconds"] else "nothing",
            duration(row["best_seconds"]),
            giga(row["best_flops"]),
        )
    out.print(table)
    out.print()
    out.print(_times(document))
    out.print()
    if tiles := _tiles(document):
        out.print(tiles, markup=False)
    for row, name in zip(document["kernels"], names, strict=True):
        if others := row["work"]["other_flops"]:
            out.print(
                f"{name}: {number(others)} operations have no ceiling here (half precision "
                "without tensor cores, divisions): arithmetic is the others' time.",
                markup=False,
            )
    for limit in _left_out(document):
        out.print(f"{limit} is left out: its ceiling is not known. The least time may be longer.")
    out.print("best: the longest of the times that each ceiling asks for by itself.")
    out.print(
        "L2: the sectors that each block loads, once each, as if its L1 forgot none: requests of a "
        "sector again cost L1 alone, which has no ceiling here."
    )
    for note in document["notes"]:
        out.print(note, markup=False)
    if few := _few_blocks(document, found.multiprocessors):
        out.print(few, markup=False)
    if document["measured"]:
        out.print("share: of the measured time, what the best would take.")
        if any(row["share"] > 1 for row in document["kernels"]):
            out.print(
                "More than 100 %: the hardware did less than was counted, or a ceiling is too low."
            )
    unchecked = [
        name for row, name in zip(document["kernels"], names, strict=True) if not row["checked"]
    ]
    if unchecked and document["m"] is not None:
        of = "" if len(unchecked) == len(names) else f" of {', '.join(unchecked)}"
        out.print(f"C{of} is not checked: not all of it was computed.", markup=False)
    for row, name in zip(document["kernels"], names, strict=True):
        if not row["correct"]:
            error(f"{name}: a wrong result")


def what_is_done(document: Mapping[str, Any]) -> str:
    """Return the product, or the launch, that the kernels were counted at."""
    if document["m"] is not None:
        sizes = ", ".join(f"{name} = {document[name]:,}" for name in ("m", "n", "k"))
        return f"C = A·B, {sizes}"
    grid, block = (tuple(document[name]) for name in ("grid", "block"))
    return f"grid {extents(grid)}, blocks of {extents(block)} threads"


def dtypes_of(document: Mapping[str, Any]) -> str:
    """Return the type of the matrices, or the types, where the kernels have several."""
    if document["dtype"] is not None:
        return str(document["dtype"])
    return " and ".join(dict.fromkeys(row["dtype"] for row in document["kernels"]))


def _tiles(document: Mapping[str, Any]) -> str:
    """Return the tiles of the kernels, if they differ."""
    edges: dict[int, list[str]] = {}
    for row, name in zip(document["kernels"], _names(document), strict=True):
        if row["tile"] is not None:
            edges.setdefault(row["tile"], []).append(name)
    if len(edges) < 2:
        return ""
    parts = (f"{edge} of {', '.join(names)}" for edge, names in edges.items())
    return f"tiles: {'; '.join(parts)}."


def _few_blocks(document: Mapping[str, Any], there: int | None) -> str:
    """Return which kernels have too few blocks for a GPU, or that this is not known."""
    if there is None:
        return "It assumes a block for every multiprocessor: how many there are is not known."
    rows = zip(document["kernels"], _names(document), strict=True)
    found = [(name, row["work"]["blocks"]) for row, name in rows]
    few = [f"{name} {blocks:,}" for name, blocks in found if blocks < there]
    if not few:
        return ""
    return (
        f"Fewer blocks than the {there} multiprocessors: {', '.join(few)}. Their times of "
        "shared memory, issue and arithmetic are those of as many multiprocessors."
    )


def _times(document: Mapping[str, Any]) -> Table:
    """Return a table of each ceiling's time, and on a GPU the measured one."""
    there = {limit["name"] for row in document["kernels"] for limit in row["limits"]}
    names = [name for name in (*LIMITS, TENSOR_CORES) if name in there]
    table = _table("least time\nby", *(_HEADINGS.get(name, f"\n{name}") for name in names))
    if document["measured"]:
        for heading in ("\nmeasured", "\nshare"):
            table.add_column(heading, justify="right", no_wrap=True)
    for row, label in zip(document["kernels"], _names(document), strict=True):
        seconds = {limit["name"]: limit["seconds"] for limit in row["limits"]}
        cells: list[Text | str] = [
            Text(duration(seconds[name]), "bold" if name == row["binding"] else "")
            if name in seconds else ""
            for name in names
        ]  # fmt: skip
        if not row["correct"]:
            cells += [verdict(False), ""]
        elif row["seconds"] is not None:
            cells += [duration(row["seconds"]), f"{row['share']:.1%}"]
        table.add_row(label, *cells)
    return table


def _names(document: Mapping[str, Any]) -> list[str]:
    """Return names of the kernels that tell them apart."""
    return labels([(row["kernel"], row["file"]) for row in document["kernels"]])


def _left_out(document: Mapping[str, Any]) -> list[str]:
    """Return the names of limits that a kernel has, and whose ceilings are not known."""
    return list(dict.fromkeys(name for row in document["kernels"] for name in row["left_out"]))


def ceilings(found: Ceilings, datasheet: Ceilings | None) -> None:
    """Print each measured ceiling, beside the data sheet's.

    Parameters
    ----------
    found : Ceilings
    datasheet : Ceilings, optional
        The data sheet's ceilings of the same GPU.
    """
    out = console()
    out.print(Text.assemble(("ceilings", "bold"), f": {found.name}, {found.arch}"))
    out.print()
    table = _table("", "measured", "datasheet", "ratio")
    for rate, (name, unit) in _UNITS.items():
        value = getattr(found, rate)
        promised = None if datasheet is None else getattr(datasheet, rate)
        cells = ["", ""] if promised is None else [si(promised, unit), f"{value / promised:.2f}"]
        table.add_row(name, si(value, unit), *cells)
    for dtype, value in found.tensor_cores.items():
        promised = None if datasheet is None else datasheet.tensor_cores.get(dtype)
        cells = (
            ["", ""] if promised is None else [si(promised, "FLOP/s"), f"{value / promised:.2f}"]
        )
        table.add_row(f"{dtype} products", si(value, "FLOP/s"), *cells)
    out.print(table)
    out.print()
    if found.tensor_cores:
        out.print("products: by tensor cores; of 16 bits, summed in float32.")
    else:
        out.print(f"The tensor cores are not measured: there is no probe for {found.arch}.")
    if datasheet is not None:
        out.print(datasheet.source, markup=False)
    out.print(found.source, markup=False)


def _ceilings_line(found: Ceilings, document: Mapping[str, Any]) -> str:
    parts = []
    kinds = dict.fromkeys(row["work"]["dtype"] for row in document["kernels"])
    for rate in ("dram", "l2", "shared", "issue", *kinds):
        name, unit = _UNITS[rate]
        value = getattr(found, rate)
        parts.append(f"{name} {'not known' if value is None else si(value, unit)}")
    of_tensor_cores = (kind for row in document["kernels"] for kind in row["work"]["tensor_cores"])
    for kind in dict.fromkeys(of_tensor_cores):
        value = found.tensor_cores.get(kind)
        told = "not known" if value is None else si(value, "FLOP/s")
        parts.append(f"tensor cores in {kind} {told}")
    return ", ".join(parts)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold")
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
