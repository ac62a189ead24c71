"""Write docs/climb.md and its two figures from the record of ``tilewise climb``.

    tilewise climb --dtype float32 --dtype bfloat16 --dtype float64 --json climb_h200.json
    python benchmarks/keep.py climb_h200.json
    python benchmarks/climb.py

climb_page.md explains each rung in words, without figures. A line ``{{first .. last}}`` there is
replaced by lines of the kernel: from the one that contains ``first`` to the next that contains
``last``. The figures come from the record, and from the counters in tilewise/ladder/lessons.json.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from climb_steps import Record, counters, digits, percent, price, product, steps
from command_line import takes_no_options
from pages import DOCS, RESULTS, ROOT, paragraph, read, table

from tilewise.bench import climb_plot, climb_sizes_plot
from tilewise.bench.climb import (
    MULTIPLY_ADDS,
    OURS,
    TENSOR_CORES,
    VENDOR,
    climbed,
    label,
    main_size,
    names,
    row_of,
    source_of,
)
from tilewise.gemm.families.simt import k_steps
from tilewise.kernel import SOURCES
from tilewise.ladder import lessons
from tilewise.ladder.rungs import RUNGS
from tilewise.precision import HALVES
from tilewise.provenance import write_whole

RECORD = RESULTS / "climb_h200.json"
STEADY = RECORD.with_name("tensor_core_rungs_h200.json")
WORDS = ROOT / "benchmarks" / "climb_page.md"
HOPPER = SOURCES / "gemm" / "hopper_schedule.cuh"
PAGE = DOCS / "climb.md"
FIGURE, SIZES_FIGURE = PAGE.with_suffix(".png"), PAGE.with_name("climb-sizes.png")
PAGES = {PAGE: (RECORD, STEADY)}

MOST_AT_AN_EDGE = 1.15  # what an operation may cost at an odd size
BURST = 0.1  # seconds: rounds shorter than that are no steady state
_QUOTE = re.compile(r"^\{\{(.+?) \.\. (.+?)\}\}$", re.MULTILINE)


def page(record: Record) -> str:
    """Return docs/climb.md."""
    words = prose(WORDS.read_text())
    parts = [
        _opening(record),
        f"![Each rung's share of what its unit can do]({FIGURE.name})\n",
        *(_table_of(record, dtype) for dtype in record["dtypes"]),
    ]
    parts += [
        f"![Shares of what the unit in use can do, over size]({SIZES_FIGURE.name})\n",
        paragraph(_accuracy(record)),
    ]
    if record["edges"]:
        parts.append(_edges(record))
    parts.append(_method(record))
    for rung in RUNGS:
        if any(row["kernel"] == rung.name for row in record["rows"]):
            parts.append(f"## {label(rung.name)}\n\n{quoted(words[rung.name], rung.path)}")
            parts += [paragraph(text) for text in steps(record, rung)]
            if costs := price(rung):
                parts.append(paragraph(costs))
            parts.append(counters(rung))
    if top := [each for each in climbed(record) if each.kernel == OURS and each.dtype in HALVES]:
        parts.append(product(record, top[0], quoted(words[OURS], HOPPER)))
    return "\n".join(part for part in parts if part)


def prose(text: str) -> dict[str, str]:
    """Return the words of climb_page.md on each rung, by the rung's name."""
    found = re.split(r"^## (\w+)\n\n", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], (part.rstrip() + "\n" for part in found[2::2]), strict=True))


def quoted(text: str, file: Path) -> str:
    """Return ``text`` with the lines of a kernel's file that it names.

    Raises
    ------
    ValueError
        If the file has no such lines.
    """

    def lines(found: re.Match[str]) -> str:
        first, last = found.groups()
        source = file.read_text().splitlines()
        start = next((i for i, line in enumerate(source) if first in line), len(source))
        end = next((i for i in range(start, len(source)) if last in source[i]), None)
        if end is None:
            raise ValueError(f"{file.name} has no lines from {first!r} to {last!r}")
        code = textwrap.dedent("\n".join(source[start : end + 1]))
        return f"```cuda\n{code}\n```"

    return _QUOTE.sub(lines, text)


# The page's head


def _opening(record: Record) -> str:
    machine = record["machine"]
    wrong = [
        f"`{row['kernel']}` at {row['n']:,} in {row['dtype']}"
        for row in (*record["rows"], *record["edges"])
        if not row.get("correct", True)
    ]
    verdict = f"Wrong: {', '.join(wrong)}." if wrong else "Every result was checked and right."
    if any(word.startswith(f"`{VENDOR}` ") for word in wrong):
        verdict += " The bound is that of sums in float32 and one rounding."
    number = len(RUNGS)
    return (
        "# The climb\n\n"
        + paragraph(
            f"{number} kernels for one product, C = A·B, from three loops in one thread to tensor "
            "cores that are fed by bulk copies. Each rung is one idea faster than the one before "
            "it, except where a rung shows what goes wrong. For each there is the idea in words, "
            "the lines that matter, what it gained, what it costs, and the counters that explain "
            "it. `tilewise run`, `profile` and `watch` take each rung by its name, with no GPU."
        )
        + "\n"
        + paragraph(
            f"The speeds were measured {record['date'][:10]} on {machine['gpu']}, beside "
            f"`tilewise.matmul` and {record['method']['vendor']} (the vendor). {verdict}"
        )
        + _since(record)
    )


def _since(record: Record) -> str:
    """Return what has changed since the climb was measured: the choice of tiles, and rungs."""
    told = ""
    if record["date"] < k_steps.record()["date"]:
        told += "\n" + paragraph(
            "**Measured before the tiles that there are now**: `tuned` and `matmul` may take "
            "others, and other kernels. The times below are the old ones, the counters today's."
        )
    measured = {row["kernel"]: row["source"] for row in record["kernels"]}
    edited = [
        f"`{rung.name}`" for rung in RUNGS
        if rung.name in measured and measured[rung.name] != source_of(rung)
    ]  # fmt: skip
    if edited:
        told += "\n" + paragraph(
            f"**Edited since**: {', '.join(edited)}. Their times and registers below are those of "
            "the earlier source, the lines and counters today's."
        )
    return told


def _table_of(record: Record, dtype: str) -> str:
    """Return the table of the main size in a dtype."""
    n = main_size(record)
    taken = {row["kernel"]: row for row in record["kernels"] if row["dtype"] == dtype}
    lines = []
    for kernel in names(record):
        row = row_of(record, kernel, n, dtype)
        if row is None:
            continue
        lines.append(
            [
                label(kernel),
                f"{row['seconds'] * 1e3:,.4g}",
                digits(row["tflops"]),
                "" if row["ratio"] is None else percent(row["ratio"]),
                "" if row["share"] is None else percent(row["share"]),
                str(taken[kernel]["registers"]) if kernel in taken else "",
                str(taken[kernel]["blocks_a_multiprocessor"]) if kernel in taken else "",
            ]
        )
    heading = [
        f"{dtype}, m = n = k = {n:,}", "ms", "TFLOP/s", "of the vendor's speed",
        "of what its unit can do", "registers a thread", "blocks a multiprocessor",
    ]  # fmt: skip
    return table(heading, lines, "lrrrrrr")


def _accuracy(record: Record) -> str:
    """Return the errors beside the vendor's, and whether two launches gave the same bits."""
    told = []
    for dtype in record["dtypes"]:
        ours = [
            row for row in record["rows"]
            if row["dtype"] == dtype and row["kernel"] != VENDOR and row.get("error_ratio")
        ]  # fmt: skip
        if not ours:
            continue
        worst = max(ours, key=lambda row: row["error_ratio"])
        told.append(
            f"In {dtype} the error of a product, the norm of C - C64 by that of C64, is at most "
            f"{worst['error_ratio']:.2f} times the vendor's (`{worst['kernel']}` at "
            f"{worst['n']:,})."
        )
    others = [row for row in record["rows"] if row["kernel"] != VENDOR and "same_bits" in row]
    if others and all(row["same_bits"] for row in others):
        told.append("Two launches gave the same bits, of matmul and of every rung.")
    return " ".join(told)


def _edges(record: Record) -> str:
    rows = [row for row in record["edges"] if "cost" in row]
    ours = [row for row in rows if row["kernel"] != VENDOR]
    beyond = [row for row in ours if row["cost"] > MOST_AT_AN_EDGE]
    places: dict[tuple[str, int], list[str]] = {}
    for row in beyond:
        places.setdefault((row["dtype"], row["n"]), []).append(f"`{row['kernel']}`")
    where = "; ".join(
        f"in {dtype} at {n:,} {', '.join(kernels)}" for (dtype, n), kernels in places.items()
    )
    most = f"{MOST_AT_AN_EDGE:g} times"
    verdict = f"More than {most}: {where}." if beyond else f"None is above {most}."
    text = (
        "At an odd size no row but the first begins at a multiple of 16 bytes, and no tile fits. "
        "The cost is that of an operation there, by that of one at the next multiple of the rung's "
        f"tile. {verdict} That there are as many tiles at both costs the square of the multiple by "
        "n: the last column."
    )
    if any(row["dtype"] in HALVES for row in rows):
        text += (
            " Of 16 bits, copies of 16 bytes need rows that begin at multiples of 8 elements: at "
            "an odd size the rungs copy element by element, which takes far longer, and only "
            "matmul has ways around it."
        )
    heading = ["", "dtype", "n", "multiple", "ms at n", "ms at the multiple", "cost", "tiles alone"]
    lines = [
        [
            label(row["kernel"]),
            row["dtype"],
            f"{row['n']:,}",
            f"{row['multiple']:,}",
            *(f"{row['seconds'][which] * 1e3:,.4g}" for which in ("odd", "multiple")),
            f"{row['cost']:.3f}",
            f"{(row['multiple'] / row['n']) ** 2:.3f}",
        ]
        for row in rows
    ]
    return f"## Odd sizes\n\n{paragraph(text)}\n{table(heading, lines, 'llrrrrrr')}"


def _made(record: Record) -> str:
    """Return the command that measured, the driver, and the versions of all packages."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return (
        f"    {record['command']}\n\n"
        + paragraph(
            "What this command wrote is kept, and `python benchmarks/climb.py` draws this page "
            f"from it. Driver {record['machine']['driver']}. Versions: {versions}."
        )
        + "\n"
    )


def _method(record: Record) -> str:
    method = record["method"]
    how = (
        f"Random normal data, in as many sets of operands as take twice the L2 cache "
        f"({method['l2_bytes'] / 2**20:.0f} MiB), used in turn. Each result is first checked "
        "against a product in more precision, by a bound that follows from its roundings; a second "
        "launch, and what was timed, must have the same bits. Then all kernels are timed in turn, "
        f"{method['rounds']} rounds, each for {method['seconds_a_round']:g} s after "
        f"{method['warm_up_seconds']:g} s of warm-up; a figure is the median of the rounds. Where "
        f"a launch of any of them takes less than {method['graph_below_seconds'] * 1e6:.0f} µs, "
        "all are replayed in CUDA graphs. A kernel whose launch takes more than "
        f"{method['apart_above_seconds']:g} s is timed by itself, in at most "
        f"{method['apart_launches']} launches; one that would take more than "
        f"{method['longest_launch_seconds']:g} s is not launched."
    )
    if method["seconds_a_round"] < BURST:
        how += (
            " Rounds as short as these are bursts. Near the power limit a kernel's speed then "
            "depends on what ran just before it too, and the kernels of one dtype always run in "
            "the same order: some percent between neighbours may be no difference." + _steady()
        )
    source = record["ceilings"]["source"].partition(";")[0]
    share = (
        "A rung is held against the unit that computes it. Fused multiply-adds without tensor "
        f"cores are {_rates(record, MULTIPLY_ADDS)}: {source}."
    )
    if rates := _rates(record, TENSOR_CORES):
        share += (
            f" Tensor cores are {rates}, by a probe in the same run; of 16 bits its operands lie "
            "in shared memory. `matmul` and the vendor's product may take either unit, and are "
            "held against the faster."
        )
    for kernel, name in ((VENDOR, "The vendor's product"), (OURS, "`matmul`")):
        above = [
            dtype for dtype in record["dtypes"]
            if any(((row_of(record, kernel, n, dtype) or {}).get("share") or 0) > 1
                   for n in record["sizes"])
        ]  # fmt: skip
        if above:
            share += (
                f" {name} is above that in {' and '.join(above)}: it takes tensor cores, whose "
                "rate in that type was not measured."
            )
    counted = lessons.known()
    counting = (
        f"The counters are the emulator's, of machine code for {counted['arch']}: "
        "`python benchmarks/lessons.py` counts them, with no GPU. [What is counted](counters.md) "
        "says what each means."
    )
    paragraphs = "\n".join(paragraph(text) for text in (how, share, counting))
    return f"## How it was measured\n\n{_made(record)}{paragraphs}"


def _steady() -> str:
    """Return the speeds of 16-bit kernels in longer rounds, if there is a record of such."""
    if not STEADY.exists():
        return ""
    found = read(STEADY)
    seconds = re.search(r"--seconds (\S+)", found["command"])
    if seconds is None or float(seconds[1]) < BURST:
        return ""
    n = max(row["n"] for row in found["rows"])
    speeds = ", ".join(
        f"`{row['kernel']}` {digits(row['tflops'])}" for row in found["rows"] if row["n"] == n
    )
    return (
        f" In rounds of {seconds[1]} s, at {n:,} in {found['rows'][0]['dtype']}: {speeds} TFLOP/s "
        f"([record](../benchmarks/results/{STEADY.name}))."
    )


def _rates(record: Record, unit: str) -> str:
    """Return a unit's rate, TFLOP/s, in each dtype where it is known."""
    found = ((dtype, record["arithmetic"][dtype].get(unit)) for dtype in record["dtypes"])
    return " and ".join(f"{rate * 1e-12:.1f} TFLOP/s in {dtype}" for dtype, rate in found if rate)


def main() -> None:
    """Draw the figures, and write the page."""
    takes_no_options(__doc__)
    record = read(RECORD)
    climb_plot.draw(record, FIGURE)
    climb_sizes_plot.draw(record, SIZES_FIGURE)
    write_whole(PAGE, page(record).encode())


if __name__ == "__main__":
    main()
