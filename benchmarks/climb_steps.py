"""Compose what docs/climb.md says of each rung: its gain, its costs, its counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pages import paragraph, table

from tilewise.bench.climb import OURS, VENDOR, Point, main_size, row_of
from tilewise.ladder import lessons
from tilewise.ladder.rungs import RUNGS, Rung
from tilewise.ladder.rungs import rung as rung_of
from tilewise.precision import HALVES

REAL = "float32"
FASTER = 1.02  # the least ratio of speeds for a rung to be called faster than the one before
ALIKE = 0.02  # the largest relative difference of counters that is not mentioned

Record = Mapping[str, Any]


def before(rung: Rung) -> str | None:
    """Return the rung that ``rung`` is compared with; None for the first."""
    return rung.against or next(
        (other.name for other in RUNGS if other.number == rung.number - 1), None
    )


# What a rung gained


def steps(record: Record, rung: Rung) -> list[str]:
    """Return the step from the rung before as it was measured, one paragraph for each dtype."""
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
    # The first rung of 16 bits is held against one that has no such products.
    kind = dtype if other is None or dtype in rung_of(other).dtypes else REAL
    shared = [n for n in sizes if other is not None and row_of(record, other, n, kind)]
    n = _preferred(record, sizes)
    mine = row_of(record, rung.name, n, dtype)
    assert mine is not None
    told = f"In {dtype}, at {n:,}: "
    parts = {"the vendor's speed": mine["ratio"], f"what {mine['unit']} can do": mine["share"]}
    shares = " and ".join(
        f"{percent(part)} of {whole}" for whole, part in parts.items() if part is not None
    )
    which = f"`{other}`" if rung.against else "the rung before"
    which += f" in {kind}" if kind != dtype else ""
    if n not in shared:
        yield f"{told}{_speed(mine)}, {shares}."
        if shared:
            first = row_of(record, str(other), shared[-1], kind)
            second = row_of(record, rung.name, shared[-1], dtype)
            assert first is not None
            assert second is not None
            gain = second["tflops"] / first["tflops"]
            yield (
                f"At {shared[-1]:,}, the largest size of both: {_speeds(first, second)}, "
                f"{gain:,.3g} times {which}."
            )
        return
    theirs = row_of(record, str(other), n, kind)
    assert theirs is not None
    gain = mine["tflops"] / theirs["tflops"]
    yield f"{told}{_speeds(theirs, mine)}, {gain:,.3g} times {which}; {shares}."
    if gain < FASTER:
        yield from _why_not(record, rung.name, str(other), dtype, is_slower=gain < 2 - FASTER)


def _preferred(record: Record, sizes: Sequence[int]) -> int:
    return main_size(record) if main_size(record) in sizes else sizes[-1]


def _why_not(record: Record, name: str, other: str, dtype: str, is_slower: bool) -> Iterator[str]:
    """Yield that a rung is not faster, and which resources and counters explain it."""
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
    own = counted[name]["dtype"]
    if dtype != own and not (dtype in HALVES and own in HALVES):  # nothing was counted in this one
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
    """Yield a sentence if a multiprocessor holds fewer threads of a rung than of another."""
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


def price(rung: Rung) -> str:
    """Return which resources a rung takes more of than the one it is compared with."""
    counted = lessons.known()["rungs"]
    other = counted[rung.name]["against"] if rung.name in counted else None
    if other is None:
        return ""
    mine, theirs = counted[rung.name]["counters"], counted[other]["counters"]
    risen = [key for key in _RESOURCES if mine[key] > (1 + ALIKE) * theirs[key]]
    rises = (f"{key} from {theirs[key]:,} to {mine[key]:,}" for key in risen)
    return f"What it takes more of: {'; '.join(rises)}." if risen else ""


def product(record: Record, top: Point, text: str) -> str:
    """Return the last step: matmul beside the last rung, by size."""
    last = max((rung for rung in RUNGS if top.dtype in rung.dtypes), key=lambda rung: rung.number)
    lines = []
    for n in record["sizes"]:
        mine, theirs, vendor = (
            row_of(record, kernel, n, top.dtype) for kernel in (OURS, last.name, VENDOR)
        )
        if mine is None:
            continue
        gain = f"{mine['tflops'] / theirs['tflops']:.3g}" if theirs else ""
        lines.append(
            [
                f"{n:,}",
                *("" if row is None else digits(row["tflops"]) for row in (theirs, mine, vendor)),
                gain,
                mine.get("by", ""),
            ]
        )
    heading = [
        f"TFLOP/s in {top.dtype}, m = n = k", last.name, OURS, VENDOR, f"times {last.name}", "by",
    ]  # fmt: skip
    parts = {"the vendor's speed": top.row["ratio"],
             f"what {top.row['unit']} can do": top.row["share"]}  # fmt: skip
    shares = " and ".join(
        f"{percent(part)} of {whole}" for whole, part in parts.items() if part is not None
    )
    told = paragraph(f"In {top.dtype}, at {top.n:,}: {_speed(top.row)}, {shares}.")
    return f"## matmul\n\n{text}\n{told}\n{table(heading, lines, 'rrrrrl')}"


_RESOURCES = ("registers a thread", "shared memory a block")


def counters(rung: Rung) -> str:
    """Return a table of the emulator's counters of a rung and of the one it is compared with."""
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


# Words


def _speeds(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    if first["tflops"] < 0.1:
        return f"{digits(1e3 * first['tflops'])} → {digits(1e3 * second['tflops'])} GFLOP/s"
    return f"{digits(first['tflops'])} → {digits(second['tflops'])} TFLOP/s"


def _speed(row: Mapping[str, Any]) -> str:
    if row["tflops"] < 0.1:
        return f"{digits(1e3 * row['tflops'])} GFLOP/s"
    return f"{digits(row['tflops'])} TFLOP/s"


def digits(value: float) -> str:
    """Return a value with three digits, or without decimals from 1,000 up."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{digits(100 * share)} %" if share >= 1e-4 else "less than 0.01 %"
