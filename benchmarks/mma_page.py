"""Writes docs/performance-mma.md: 16-bit products by ``mma.sync``, from the records.

    python benchmarks/mma_page.py

The records are ``benchmarks/results/mma_*_h200.json``, as ``benchmarks/mma_products.py`` writes
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import paragraph, table
from triton_configs import CONFIGS

from tilewise.bench.suites import SUITES
from tilewise.bench.summary import geometric_mean

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance-mma.md"
RESULTS = ROOT / "benchmarks" / "results"
RECORDS = tuple(RESULTS / f"mma_{name}_h200.json" for name in ("sizes", "suites", "random"))

ROOFLINE = RESULTS / "roofline_h200.json"
SHARE = 0.62  # of which mma.sync is known to reach there at best
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

**It was measured on an H200, and not on an A100 or an RTX card**: no such GPU was at hand, and an
H200 has these instructions too. tilewise plans here as for a GPU of compute capability 8.0 with the
H200's multiprocessors, clock and memory, so that no kernel for Hopper answers. The rivals' kernels
are those for compute capability 8.0 as well, with machine code for the H200, as ours:

- Triton's matmul in the form of its tutorial, in {triton} configurations: the tutorial's, those of
  TorchInductor's template, and some more with large tiles. Its PTX is for `sm_80`, with `mma.sync`
  and, if rows are aligned, 16-byte copies by `cp.async`. It is told which strides are multiples of
  8 elements; Triton by itself asks for multiples of 16.
- CUTLASS's `GemmUniversal` with `arch::Sm80`, in 16 tilings, each with four orders of tiles.

For each product all of a rival's ways are timed briefly, and the fastest one is then timed in turn
with ours, which is the planner's choice without tuning. The rivals may use all the shared memory
of an H200, which is more than an A100 has. PyTorch's product, cuBLAS with Hopper's instructions, is
there to show what those are worth.
"""


def page(sizes: Row, suites: Row, drawn: Row) -> str:
    """Return the page."""
    records = sizes, suites, drawn
    rivals = "triton", "cutlass"
    parts = [
        HEAD.format(triton=len(CONFIGS)), "\n## How it was measured\n\n", _method(records),
        "\n## Large products\n\n", _large(sizes, _ceiling(sizes["dtype"])),
        "\n## In the mean\n\n", _means(suites, drawn),
        "\n## Where a rival is faster\n\n", _slower(suites["rows"], rivals),
        "\n## All of square and llm\n\n", _every(suites["rows"], (*rivals, "vendor")),
        "\n## Products whose matrices are not aligned\n\n", _off(drawn),
    ]  # fmt: skip
    return "".join(parts)


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
    top = (
        f"{first['dtype']}, {first['date'][:10]}, on {gpu} (driver {driver}). Every result was "
        "checked against float64 before it was timed, and is right."
    )
    told = (
        "Random normal data, in as many sets of operands as take twice the L2 cache, at most 64, "
        "used in turn. A figure is the median of the rounds: 5 rounds of 0.03 s each where the "
        "command says nothing else, each after half of that as warm-up; in half of the rounds in "
        "one order, in the others in the reverse order, and PyTorch's apart, after them. Where a "
        "launch takes less than 100 µs, all are replayed in CUDA graphs. After the rounds the "
        f"clock was {min(clocks):,} to {max(clocks):,} MHz: the power limit rules large products, "
        "and single figures vary by some percent. A ratio is the rival's time by ours: above 1 "
        "ours is faster. Means are geometric."
    )
    parts = (paragraph(top), commands, paragraph(told), paragraph(f"Versions: {versions}."))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _ceiling(dtype: str) -> float:
    """Return the TFLOP/s of an H200's tensor cores by wgmma, in the steady state, as measured."""
    record = json.loads(ROOFLINE.read_text(encoding="utf-8"))
    return 1e-12 * float(record["ceilings"]["tensor_cores"][dtype])


def _large(record: Row, ceiling: float) -> str:
    rows = record["rows"]
    names = ("tilewise", "triton", "cutlass", "vendor")
    lines = [
        (
            row["name"], row["layout"], *(f"{row['tflops'][name]:.0f}" for name in names),
            *(f"{row['ratios'][name]:.3f}" for name in names[1:3]),
        )
        for row in rows
    ]  # fmt: skip
    heading = ("", "", "tilewise", "Triton", "CUTLASS", "PyTorch", "x Triton", "x CUTLASS")
    means = {name: geometric_mean(row["ratios"][name] for row in rows) for name in names[1:3]}
    best = {name: max(row["tflops"][name] for row in rows) for name in names[:3]}
    shares = {name: f"{speed / ceiling:.2f}" for name, speed in best.items()}
    told = (
        f"In the mean {means['triton']:.3f} of Triton's speed, and {means['cutlass']:.3f} of "
        f"CUTLASS's. By `wgmma`, an H200's tensor cores reach {ceiling:.0f} TFLOP/s in the steady "
        f"state. The most that `mma.sync` is said to give there is {SHARE:g} of that, "
        f"{SHARE * ceiling:.0f}. None comes near it: of the {ceiling:.0f}, tilewise reaches "
        f"{shares['tilewise']} at most, Triton {shares['triton']} and CUTLASS {shares['cutlass']}."
    )
    return "TFLOP/s:\n\n" + table(heading, lines, "llrrrrrr") + "\n" + paragraph(told)


def _means(suites: Row, drawn: Row) -> str:
    found = [*suites["summaries"], *drawn["summaries"]]
    lines = [
        (
            each["suite"], NAMES[each["rival"]], str(each["products"]), f"{each['mean']:.3f}",
            f"{each['worst']:.3f}", each["name"],
        )
        for each in found
    ]  # fmt: skip
    missing = _missing(suites, drawn)
    text = paragraph(" ".join(["The time was up before all were timed:", *missing]))
    heading = ("suite", "beside", "products", "mean ratio", "worst", "at")
    return table(heading, lines, "llrrrl") + (f"\n{text}" if missing else "")


def _missing(suites: Row, drawn: Row) -> list[str]:
    """What was asked for and not timed, in words."""
    sizes = {name: len(SUITES[name]) for name in ("square", "llm")}
    counts = {
        name: sum(row["suite"] == name for row in suites["rows"]) for name in sizes
    }  # fmt: skip
    told = [
        f"{counts[name]} of the {of} of {name} are here."
        for name, of in sizes.items()
        if counts[name] < of
    ]
    asked = re.search(r"--random (\d+)", drawn["command"])
    assert asked is not None
    if len(drawn["rows"]) < int(asked[1]):
        told.append(f"{len(drawn['rows'])} of the {asked[1]} random ones are here.")
    if told and (printed := suites.get("printed", 0) + drawn.get("printed", 0)):
        told.append(
            f"The last {printed} that are here are read from what the runs printed, with its "
            "digits."
        )
    return told


def _slower(rows: Sequence[Row], rivals: Sequence[str]) -> str:
    lines = []
    for row in sorted(rows, key=lambda row: min(row["ratios"][x] for x in rivals)):
        name = min(rivals, key=lambda x: row["ratios"][x])
        if row["ratios"][name] < 1:
            lines.append(
                (
                    f"{row['name']} {row['layout']}", f"{row['ratios'][name]:.3f}", NAMES[name],
                    row["ways"][name], _way(row),
                )
            )  # fmt: skip
    told = (
        f"{len(lines)} of {len(rows)} products, beside the faster of Triton's and CUTLASS's. Where "
        "1 to 128 rows meet a large matrix, the rivals' k-steps are mostly the deeper ones, and "
        "more of them are under way."
    )
    heading = ("product", "ratio", "beside", "its way", "ours")
    return paragraph(told) + "\n" + table(heading, lines, "lrlll")


def _every(rows: Sequence[Row], rivals: Sequence[str]) -> str:
    lines = [
        (
            row["name"], row["layout"], f"{1e6 * row['seconds']['tilewise']:,.1f}",
            f"{row['tflops']['tilewise']:.1f}", *(f"{row['ratios'][x]:.3f}" for x in rivals),
        )
        for row in rows
    ]  # fmt: skip
    heading = ("", "", "µs", "TFLOP/s", *(f"x {NAMES[x]}" for x in rivals))
    return table(heading, lines, "llrrrrr")


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
        f"{means['triton padded']:.2f} of the padded product's speed, "
        f"{means['triton copied']:.2f} of the copied one's, {means['triton']:.2f} of Triton's "
        f"without either, and {best:.2f} of the fastest of the three. The least is gained where D "
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
    """Ours, in few words."""
    return (
        str(row["ways"]["tilewise"])
        .replace("the kernel by mma.sync, ", "")
        .replace(", as the rows are not 16-byte aligned; then", ",")
        .replace(" that are added up afterwards", "")
    )


def main() -> int:
    PAGE.write_text(page(*(json.loads(path.read_text()) for path in RECORDS)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
