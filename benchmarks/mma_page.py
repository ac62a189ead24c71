"""Write docs/performance-mma.md, 16-bit products by ``mma.sync`` beside Triton and CUTLASS.

    python benchmarks/mma_page.py

The records are ``benchmarks/results/mma_*_h200.json``, as ``benchmarks/mma_products.py`` writes
them. The tables have a column for CUTLASS if any row has a time of it; other rows' cells are empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from command_line import takes_no_options
from pages import DOCS, RESULTS, gpu_of, paragraph, read, table
from triton_configs import CONFIGS

from tilewise.bench.suites import SUITES
from tilewise.bench.summary import geometric_mean

PAGE = DOCS / "performance-mma.md"
RECORDS = tuple(RESULTS / f"mma_{name}_h200.json" for name in ("suites", "random", "random_8"))
PAGES = {PAGE: RECORDS}
LARGE = 4096  # rows of the square products that count as large

NAMES = {
    "triton": "Triton", "triton padded": "Triton, padded", "triton copied": "Triton, copied",
    "cutlass": "CUTLASS", "vendor": "PyTorch",
}  # fmt: skip
Row = Mapping[str, Any]

HEAD = """\
# 16-bit products by mma.sync

<!-- Written by benchmarks/mma_page.py from benchmarks/results/mma_*_h200.json. -->

On GPUs without Hopper's own instructions, from Ampere on, tilewise multiplies float16 and bfloat16
by `mma.sync` and `cp.async`. This page compares that kernel with Triton's and CUTLASS's.

{where}
- Triton's matmul in the form of its tutorial, in {triton} configurations: the tutorial's, those of
  TorchInductor's template, and some more with large tiles. Its PTX is for `sm_80`, with `mma.sync`
  and, if rows are aligned, 16-byte copies by `cp.async`. It is told which strides are multiples of
  8 elements; Triton by itself asks for multiples of 16.
- CUTLASS's `GemmUniversal` with `arch::Sm80`, in 16 tilings, each with four orders of tiles.

For each product all of a rival's ways are timed briefly, and the fastest one is then timed in turn
with ours, which is the planner's choice without tuning. Where the command says `--fastest-of`, only
those ways are timed that were the fastest of a product of an earlier record. The rivals may use all
the shared memory of a multiprocessor here, 227 KB, which is more than an A100 has. PyTorch's
product, cuBLAS with Hopper's instructions, is there to show what those are worth.
"""
WHERE = """\
**It was measured on an {gpu}, and not on an A100 or an RTX card**: no such GPU was at hand, and
this one has these instructions too. tilewise plans here as for a GPU of compute capability 8.0 with
this one's multiprocessors, clock and memory, so that no kernel for Hopper answers. The rivals'
kernels are those for compute capability 8.0 as well, compiled to machine code for this GPU, as
tilewise's kernel is:
"""


def page(suites: Row, drawn: Row, aligned: Row) -> str:
    """Return the page."""
    records = suites, drawn, aligned
    rows = sorted(suites["rows"], key=lambda row: list(SUITES).index(row["suite"]))
    rivals = _rivals_of(rows)
    gpu = gpu_of(suites)
    if any(gpu_of(record) != gpu for record in records):
        raise ValueError("the records are of several GPUs; the page speaks of one")
    parts = [
        HEAD.format(where=paragraph(WHERE.format(gpu=gpu)), triton=len(CONFIGS)),
        "\n## How it was measured\n\n",
        _method(records), "\n## Large products\n\n", _large(rows),
        "\n## In the mean\n\n", _means(records),
        "\n## Where a rival is faster\n\n", _slower(rows, rivals),
        "\n## All of square and llm\n\n", _every(rows, (*rivals, "vendor")),
        "\n## Products whose matrices are not aligned\n\n", _off(drawn),
    ]  # fmt: skip
    return "".join(parts)


def _rivals_of(rows: Sequence[Row]) -> list[str]:
    """Return the rivals by mma.sync that were timed for any of the rows."""
    return [x for x in ("triton", "cutlass") if any(x in row["ratios"] for row in rows)]


def _figure(values: Mapping[str, float], name: str, digits: int = 3) -> str:
    """Return a rival's figure as text; it is empty if the rival was not timed."""
    return f"{values[name]:.{digits}f}" if name in values else ""


def _timed_for_a_part(rows: Sequence[Row], rivals: Sequence[str]) -> str:
    """Say which rivals were timed for only a part of the rows."""
    told = []
    for name in rivals:
        timed = [row["suite"] for row in rows if name in row["ratios"]]
        if len(timed) < len(rows):
            suites = " and ".join(sorted(set(timed)))
            told.append(f" {NAMES[name]} was timed for {len(timed)} of them, of {suites}.")
    return "".join(told)


def _method(records: Sequence[Row]) -> str:
    first = records[0]
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    clocks = [
        clock
        for record in records
        for row in record["rows"]
        for name, found in row["clocks_of_rounds"].items()
        if name != "vendor"
        for clock in found
    ]
    commands = "".join(f"    {record['command']}\n\n" for record in records)
    gpu, driver = first["machine"]["gpu"], first["machine"]["driver"]
    if any(row["wrong"] for record in records for row in record["rows"]):
        raise ValueError("a result was wrong; the page says that all are right")
    dates = " and ".join(sorted({record["date"][:10] for record in records}))
    top = (
        f"{first['dtype']}, {dates}, on {gpu} (driver {driver}). Every result was checked against "
        "float64 before it was timed, and is right."
    )
    told = (
        "Random normal data, in as many sets of operands as take twice the L2 cache, at most 64, "
        "used in turn. A figure is the median of the rounds: 5 rounds of 0.03 s each where the "
        "command says nothing else, each after half of that as warm-up; in half of the rounds in "
        "one order, in the others in the reverse order, and PyTorch's apart, after them. Where a "
        "launch takes less than 100 µs, all are replayed in CUDA graphs. "
        + (
            f"After the rounds the clock was {min(clocks):,} to {max(clocks):,} MHz: the power "
            "limit rules large products, and single figures vary by some percent. "
            if clocks
            else ""
        )
        + "A ratio is the rival's time by ours: above 1 ours is faster. Means are geometric."
    )
    parts = (paragraph(top), commands, paragraph(told), paragraph(f"Versions: {versions}."))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _large(measured: Sequence[Row]) -> str:
    rows = [x for x in measured if x["suite"] == "square" and x["m"] >= LARGE]
    rivals = _rivals_of(rows)
    names = ["tilewise", *rivals, "vendor"]
    lines = [
        (
            row["name"], row["layout"], *(_figure(row["tflops"], x, 0) for x in names),
            *(_figure(row["ratios"], x) for x in rivals),
        )
        for row in rows
    ]  # fmt: skip
    heading = [
        "", "", "tilewise", *(NAMES[x] for x in names[1:]), *(f"x {NAMES[x]}" for x in rivals)
    ]  # fmt: skip
    means = [f"{_mean(rows, x):.3f} times as fast as {NAMES[x]}" for x in rivals]
    told = f"In the mean tilewise is {' and '.join(means)}."
    sides = "ll" + "r" * (len(heading) - 2)
    return "TFLOP/s:\n\n" + table(heading, lines, sides) + "\n" + paragraph(told)


def _mean(rows: Sequence[Row], rival: str) -> float:
    return geometric_mean(row["ratios"][rival] for row in rows if rival in row["ratios"])


def _means(records: Sequence[Row]) -> str:
    found = [each for record in records for each in record["summaries"]]
    lines = [
        (
            each["suite"], NAMES[each["rival"]], str(each["products"]), f"{each['mean']:.3f}",
            f"{each['worst']:.3f}", each["name"],
        )
        for each in found
    ]  # fmt: skip
    missing = [told for record in records for told in _missing(record)]
    why = (
        "Products without a time, and those whose plan is not the one that was measured, are left "
        "out:"
    )
    text = paragraph(" ".join([why, *missing]))
    heading = ("suite", "beside", "products", "mean ratio", "worst", "at")
    return table(heading, lines, "llrrrl") + (f"\n{text}" if missing else "")


def _missing(record: Row) -> list[str]:
    """Return in words what a record's command names and was not timed."""
    command, rows = record["command"], record["rows"]
    suites = {name: len(SUITES[name]) for name in SUITES if re.search(rf"\b{name}\b", command)}
    told = []
    for name, of in suites.items():
        count = sum(row["suite"] == name for row in rows)
        if count < of:
            told.append(f"{count} of the {of} of {name} are here.")
    asked = re.search(r"--random (\d+)", command)
    count = sum(row["suite"].startswith("random") for row in rows)
    if asked and count < int(asked[1]):
        told.append(f"{count} of the {asked[1]} of {rows[0]['suite']} are here.")
    if printed := record.get("printed", 0):
        told.append(
            f"{printed} of {rows[0]['suite']} have the precision that the program prints with."
        )
    return told


def _slower(rows: Sequence[Row], rivals: Sequence[str]) -> str:
    lines = []
    found = [({x: row["ratios"][x] for x in rivals if x in row["ratios"]}, row) for row in rows]
    for ratios, row in sorted(found, key=lambda each: min(each[0].values())):
        name = min(ratios, key=ratios.__getitem__)
        if ratios[name] < 1:
            lines.append(
                (
                    f"{row['name']} {row['layout']}", f"{ratios[name]:.3f}", NAMES[name],
                    row["ways"][name], _way(row),
                )
            )  # fmt: skip
    beside = " or ".join(NAMES[x] for x in rivals)
    told = f"{len(lines)} of {len(rows)} products, beside {beside}."
    told += _timed_for_a_part(rows, rivals)
    heading = ("product", "ratio", "beside", "its way", "ours")
    return paragraph(told) + "\n" + table(heading, lines, "lrlll")


def _every(rows: Sequence[Row], rivals: Sequence[str]) -> str:
    lines = [
        (
            row["name"], row["layout"], f"{1e6 * row['seconds']['tilewise']:,.1f}",
            f"{row['tflops']['tilewise']:.1f}", *(_figure(row["ratios"], x) for x in rivals),
        )
        for row in rows
    ]  # fmt: skip
    heading = ("", "", "µs", "TFLOP/s", *(f"x {NAMES[x]}" for x in rivals))
    return table(heading, lines, "llrr" + "r" * len(rivals))


def _off(record: Row) -> str:
    rows = record["rows"]
    rivals = ("triton", "triton padded", "triton copied", "vendor")
    means = {x: geometric_mean(row["ratios"][x] for row in rows) for x in rivals}
    best = geometric_mean(min(row["ratios"][x] for x in rivals[:3]) for row in rows)
    told = (
        "Random sizes, any layout: most matrices' rows begin at odd multiples of 2 bytes. Triton's "
        "kernel then loads single elements. Padded by hand, A and B are made anew by "
        "`torch.nn.functional.pad` with rows of whole 16 bytes, the aligned kernel multiplies, and "
        "the result is copied to where it belongs. Copied, they go into zeros that stay from "
        "product to product. All copies count. In the mean tilewise has "
        f"{means['triton padded']:.3f} of the padded product's speed, "
        f"{means['triton copied']:.3f} of the copied one's, {means['triton']:.3f} of Triton's "
        f"without either, and {best:.3f} of the fastest of the three. The least is gained where D "
        "is large; small products can lose where A or B is repacked first."
    )
    lines = [
        (
            row["name"], row["layout"], f"{1e6 * row['seconds']['tilewise']:,.1f}",
            *(f"{row['ratios'][x]:.2f}" for x in rivals), _way(row),
        )
        for row in rows
    ]  # fmt: skip
    heading = ("", "", "µs", *(f"x {NAMES[x]}" for x in rivals), "way")
    return paragraph(told) + "\n" + table(heading, lines, "llrrrrrl")


def _way(row: Row) -> str:
    """Return in few words how tilewise computed a product."""
    return (
        str(row["ways"]["tilewise"])
        .replace("the kernel by mma.sync, ", "")
        .replace(", as the rows are not 16-byte aligned; then", ",")
        .replace(" that are added up afterwards", "")
    )


def main() -> None:
    """Write the page."""
    takes_no_options(__doc__)
    PAGE.write_text(page(*map(read, RECORDS)), encoding="utf-8")


if __name__ == "__main__":
    main()
