"""Draws docs/climb.md and its figure from what ``tilewise climb`` measured.

tilewise climb --dtype float32 --dtype float64 --json climb_h200.json
python benchmarks/keep.py climb_h200.json
python benchmarks/climb.py

What each rung is about stands in climb_page.md, without figures; a line ``{{first .. last}}`` there
stands for the kernel's own, from that with ``first`` to the next with ``last``. The figures are
those of the record, and of the counters in tilewise/ladder/lessons.json.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import paragraph, table

from tilewise.bench import climb_plot
from tilewise.bench.climb import OURS, VENDOR, label, main_size, names, row_of, source_of
from tilewise.gemm.families.simt import k_steps
from tilewise.ladder import lessons
from tilewise.ladder.rungs import RUNGS, Rung
from tilewise.precision import HALVES
from tilewise.provenance import write_whole

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "climb_h200.json"
WORDS = ROOT / "benchmarks" / "climb_page.md"
PAGE = ROOT / "docs" / "climb.md"
FIGURE = PAGE.with_suffix(".png")

MOST_AT_AN_EDGE = 1.15  # what an operation may cost at an odd size
FASTER = 1.02  # a rung below this much of the one before is not called faster
ALIKE = 0.02  # counters that differ by less are as good as the same
_QUOTE = re.compile(r"^\{\{(.+?) \.\. (.+?)\}\}$", re.MULTILINE)

Record = Mapping[str, Any]


def page(record: Record) -> str:
    """The whole of docs/climb.md."""
    words = prose(WORDS.read_text())
    parts = [_opening(record), *(_table_of(record, dtype) for dtype in record["dtypes"])]
    parts += [f"![GFLOP/s over size]({FIGURE.name})\n", paragraph(_accuracy(record))]
    if record["edges"]:
        parts.append(_edges(record))
    parts.append(_method(record))
    for rung in RUNGS:
        if any(row["kernel"] == rung.name for row in record["rows"]):
            parts.append(f"## {label(rung.name)}\n\n{quoted(words[rung.name], rung)}")
            parts += [paragraph(text) for text in steps(record, rung)]
            parts.append(_counters(rung))
    return "\n".join(part for part in parts if part)


def prose(text: str) -> dict[str, str]:
    """What climb_page.md says of each rung, by its name."""
    found = re.split(r"^## (\w+)\n\n", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], (part.rstrip() + "\n" for part in found[2::2]), strict=True))


def quoted(text: str, rung: Rung) -> str:
    """``text`` with the lines of the rung's file that it names.

    Raises
    ------
    ValueError
        If the file has none such.
    """

    def lines(found: re.Match[str]) -> str:
        first, last = found.groups()
        source = rung.path.read_text().splitlines()
        start = next((i for i, line in enumerate(source) if first in line), len(source))
        end = next((i for i in range(start, len(source)) if last in source[i]), None)
        if end is None:
            raise ValueError(f"{rung.path.name} has no lines from {first!r} to {last!r}")
        code = textwrap.dedent("\n".join(source[start : end + 1]))
        return f"```cuda\n{code}\n```"

    return _QUOTE.sub(lines, text)


def before(rung: Rung) -> str | None:
    """The rung that ``rung`` is held against; None for the first."""
    return rung.against or next(
        (other.name for other in RUNGS if other.number == rung.number - 1), None
    )


# What a rung gained


def steps(record: Record, rung: Rung) -> list[str]:
    """The step from the rung before, a paragraph a dtype, as it was measured."""
    rows = [row for row in record["rows"] if row["kernel"] == rung.name]
    if not any("tflops" in row for row in rows):
        why = next((row["skipped"] for row in rows if "skipped" in row), "its results were wrong")
        return [f"It has no figure here: {why}."]
    dtypes = [dtype for dtype in record["dtypes"] if dtype in rung.dtypes]
    return [" ".join(_step(record, rung, dtype)) for dtype in dtypes]


def _step(record: Record, rung: Rung, dtype: str) -> Iterator[str]:
    other = before(rung)
    sizes = [n for n in record["sizes"] if row_of(record, rung.name, n, dtype)]
    if not sizes:
        yield f"In {dtype} it has no figure here."
        return
    shared = [n for n in sizes if other is not None and row_of(record, other, n, dtype)]
    n = _preferred(record, sizes)
    mine = row_of(record, rung.name, n, dtype)
    assert mine is not None
    told = f"In {dtype}, at {n:,}: "
    parts = {"the vendor's speed": mine["ratio"], "the arithmetic ceiling": mine["share"]}
    shares = " and ".join(
        f"{_percent(part)} of {whole}" for whole, part in parts.items() if part is not None
    )
    which = f"`{other}`" if rung.against else "the rung before"
    if n not in shared:
        yield f"{told}{_speed(mine)}, {shares}."
        if shared:
            first, second = (row_of(record, str(name), shared[-1], dtype) for name in
                             (other, rung.name))  # fmt: skip
            assert first is not None
            assert second is not None
            gain = second["tflops"] / first["tflops"]
            yield (
                f"At {shared[-1]:,}, the largest size of both: {_speeds(first, second)}, "
                f"{gain:,.3g} times {which}."
            )
        return
    theirs = row_of(record, str(other), n, dtype)
    assert theirs is not None
    gain = mine["tflops"] / theirs["tflops"]
    yield f"{told}{_speeds(theirs, mine)}, {gain:,.3g} times {which}; {shares}."
    if gain < FASTER:
        yield from _why_not(record, rung.name, str(other), dtype, is_slower=gain < 2 - FASTER)


def _preferred(record: Record, sizes: Sequence[int]) -> int:
    return main_size(record) if main_size(record) in sizes else sizes[-1]


def _why_not(record: Record, name: str, other: str, dtype: str, is_slower: bool) -> Iterator[str]:
    """That a rung is not faster, and what of its resources and counters goes with it."""
    yield "It is slower." if is_slower else "That is hardly a difference."
    held = list(_held(record, name, other, dtype))
    yield from held
    document = lessons.known()
    counted = document["rungs"]
    if name not in counted or other not in counted:
        return
    mine, theirs = counted[name]["counters"], counted[other]["counters"]
    changed = [
        key for key in mine
        if key not in _RESOURCES and abs(mine[key] - theirs[key]) > ALIKE * theirs[key]
    ]  # fmt: skip
    risen = [key for key in changed if mine[key] > theirs[key]]
    if dtype != counted[name]["dtype"]:  # nothing was counted in this one
        if risen and is_slower:
            yield f"What rises in {counted[name]['dtype']} is in the table below."
        elif is_slower and not held:
            yield "What a multiprocessor holds of it does not explain that."
        return
    if risen:
        rises = (f"{key} from {theirs[key]:,} to {mine[key]:,}" for key in risen)
        yield f"What rises: {'; '.join(rises)}."
    elif changed and not is_slower:
        falls = (f"{key} from {theirs[key]:,} to {mine[key]:,}" for key in changed)
        yield f"What falls is not what it waited for: {'; '.join(falls)}."
    elif not changed:
        yield f"No counter below differs from that of `{other}` by more than {ALIKE:.0%}."
    elif not held:
        yield "Neither what a multiprocessor holds of it nor what was counted explains that."


def _held(record: Record, name: str, other: str, dtype: str) -> Iterator[str]:
    """That a multiprocessor holds fewer threads of a rung than of another."""
    taken = {row["kernel"]: row for row in record["kernels"] if row["dtype"] == dtype}
    if name not in taken or other not in taken:
        return
    mine, theirs = taken[name], taken[other]
    held = [row["blocks_a_multiprocessor"] * row["threads"] for row in (mine, theirs)]
    if held[0] < held[1]:
        yield (
            f"A thread takes {mine['registers']} registers where one of `{other}` takes "
            f"{theirs['registers']}, and a block {mine['shared_bytes']:,} bytes of shared memory "
            f"where that takes {theirs['shared_bytes']:,}: a multiprocessor holds {held[0]:,} "
            f"threads in place of {held[1]:,}, and {' and '.join(mine['limited_by'])} allow no "
            "more."
        )


_RESOURCES = ("registers a thread", "shared memory a block")


def _counters(rung: Rung) -> str:
    """What the emulator counted of a rung, beside the one that it is held against."""
    document = lessons.known()
    counted = document["rungs"]
    if rung.name not in counted:
        return ""
    other = counted[rung.name]["against"]
    shown = [name for name in (other, rung.name) if name is not None]
    found = [counted[name]["counters"] for name in shown]
    lines = [
        [key, *(f"{each[key]:,}" for each in found)]
        for key in found[-1]
        if any(each[key] for each in found)
    ]
    size = " x ".join(str(document[name]) for name in ("m", "n", "k"))
    own, of = counted[rung.name]["dtype"], [counted[name]["dtype"] for name in shown]
    alike = len(set(of)) == 1
    heading = [f"at {size} in {own}", *shown] if alike else [
        f"at {size}", *(f"{name}, {kind}" for name, kind in zip(shown, of, strict=True))
    ]  # fmt: skip
    return table(heading, lines, "l" + "r" * len(shown))


# The page's head


def _opening(record: Record) -> str:
    machine = record["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    wrong = [
        f"`{row['kernel']}` at {row['n']:,} in {row['dtype']}"
        for row in (*record["rows"], *record["edges"])
        if not row.get("correct", True)
    ]
    verdict = f"Wrong: {', '.join(wrong)}." if wrong else "Every result was checked and right."
    what = f"Every rung of the ladder, measured {record['date'][:10]} on {machine['gpu']} (driver "
    return (
        "# The climb\n\n"
        + paragraph(
            f"{what}{machine['driver']}), beside `tilewise.matmul` and {record['method']['vendor']}"
            f". {verdict}"
        )
        + f"\n    {record['command']}\n\n"
        + paragraph(
            "This page is drawn from what that wrote, by `python benchmarks/climb.py`. "
            f"Versions: {versions}."
        )
        + _since(record)
    )


def _since(record: Record) -> str:
    """What has changed since it was measured: the choice of tiles, and rungs."""
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
    """One size in full."""
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
                _digits(row["tflops"]),
                "" if row["ratio"] is None else _percent(row["ratio"]),
                "" if row["share"] is None else _percent(row["share"]),
                str(taken[kernel]["registers"]) if kernel in taken else "",
                str(taken[kernel]["blocks_a_multiprocessor"]) if kernel in taken else "",
            ]
        )
    heading = [
        f"{dtype}, m = n = k = {n:,}", "ms", "TFLOP/s", "of the vendor's speed",
        "of the arithmetic ceiling", "registers a thread", "blocks a multiprocessor",
    ]  # fmt: skip
    return table(heading, lines, "lrrrrrr")


def _accuracy(record: Record) -> str:
    """How far results are from exact ones, beside the vendor's, and whether they repeat."""
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
    where = ", ".join(f"`{row['kernel']}` at {row['n']:,} in {row['dtype']}" for row in beyond)
    most = f"{MOST_AT_AN_EDGE:g} times"
    verdict = f"More than {most}: {where}." if beyond else f"None is above {most}."
    text = (
        "At an odd size no row but the first begins at a multiple of 16 bytes, and no tile fits. "
        "The cost is that of an operation there, by that of one at the next multiple of the rung's "
        f"tile. {verdict} That there are as many tiles at both costs the square of the multiple by "
        "n: the last column."
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
    ceilings = record["ceilings"]
    rates = {
        dtype: f"{ceilings[dtype] * 1e-12:.1f} TFLOP/s in {dtype}"
        for dtype in record["dtypes"] if ceilings.get(dtype)
    }  # fmt: skip
    real = " and ".join(rate for dtype, rate in rates.items() if dtype not in HALVES)
    share = (
        f"The arithmetic ceiling is the rate of fused multiply-adds without tensor cores, {real}: "
        f"{ceilings['source'].partition(';')[0]}."
    )
    if half := " and ".join(rate for dtype, rate in rates.items() if dtype in HALVES):
        share += f" Of 16 bits it is that of the tensor cores, fed from shared memory: {half}."
    for kernel, name in ((VENDOR, "The vendor's product"), (OURS, "`matmul`")):
        above = [
            dtype for dtype in record["dtypes"]
            if any(((row_of(record, kernel, n, dtype) or {}).get("share") or 0) > 1
                   for n in record["sizes"])
        ]  # fmt: skip
        if above:
            share += (
                f" {name} is above it in {' and '.join(above)}: that takes tensor cores, and the "
                "rungs of that type have none."
            )
    counted = lessons.known()
    counters = (
        f"The counters are the emulator's, of machine code for {counted['arch']}: "
        "`python benchmarks/lessons.py` counts them, with no GPU. The README says what each means."
    )
    paragraphs = "\n".join(paragraph(text) for text in (how, share, counters))
    return f"## How it was measured\n\n{paragraphs}"


# Words


def _speeds(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    if first["tflops"] < 0.1:
        return f"{_digits(1e3 * first['tflops'])} → {_digits(1e3 * second['tflops'])} GFLOP/s"
    return f"{_digits(first['tflops'])} → {_digits(second['tflops'])} TFLOP/s"


def _speed(row: Mapping[str, Any]) -> str:
    if row["tflops"] < 0.1:
        return f"{_digits(1e3 * row['tflops'])} GFLOP/s"
    return f"{_digits(row['tflops'])} TFLOP/s"


def _digits(value: float) -> str:
    """At least three digits, and none that means nothing."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{_digits(100 * share)} %" if share >= 1e-4 else "less than 0.01 %"


def main() -> None:
    record = json.loads(RECORD.read_text())
    climb_plot.draw(record, FIGURE)
    write_whole(PAGE, page(record).encode())


if __name__ == "__main__":
    main()
