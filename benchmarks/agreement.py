"""Writes what the emulator and Nsight Compute agree on into docs/profiling.md.

    python benchmarks/agreement.py

From benchmarks/results/counters_h200.json, as ``benchmarks/counters.py`` and ``keep.py`` wrote it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewise.ladder.rungs import rungs_of
from tilewise.lens.metrics import EXACT, NEAR

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "counters_h200.json"
PAGE = ROOT / "docs" / "profiling.md"
BEGIN, END = "<!-- agreement: python benchmarks/agreement.py -->\n", "<!-- /agreement -->\n"

# Why the others differ where they do.
REASONS = {
    "bulk_load_sectors": "the metric has a multicast's sectors once for each of its blocks",
    **dict.fromkeys(
        NEAR[:2],
        "of lanes that copy between random places, not all that meets in the banks is known",
    ),
    "fmul": "ptxas leaves out a product that the PTX makes ahead of a branch, or moves it",
    "fadd": "ptxas leaves out additions whose result no thread wants",
    "divergent_branches": "ptxas makes selects and predicates of short branches",
    "warp_instructions": "one PTX instruction is none, one or several of the machine's",
}


def text(record: Mapping[str, Any]) -> str:
    """The part of the page: what was compared, what is equal, and where the rest differs."""
    cases = record["cases"]
    gpu = str(record["machine"]["gpu"]).partition(",")[0]
    there = {name: None for case in cases for name in case["hardware"]}
    exact = [name for name in EXACT if name in there]
    names = [name for name in there if name not in exact]
    differing = {name: _differing(cases, name) for name in names}
    equal = [name for name, found in differing.items() if not found]
    wrong = [name for name in exact if _differing(cases, name)]
    assert not wrong, f"{wrong} must be equal"
    counted = Counter(case["name"].partition("-")[0] for case in cases)
    each = {rung.name: counted[rung.name] // 2 for rung in rungs_of("float32")}  # and double
    most = max(each.values())
    fewer = {
        count: ", ".join(f"`{name}`" for name in each if each[name] == count)
        for count in sorted(set(each.values()) - {most}, reverse=True)
    }
    parts = [
        f"{names} at {count}" if count else f"{names} not since they were edited"
        for count, names in fewer.items()
    ]
    few = f" ({'; '.join(parts)})" if parts else ""
    lines = [
        f"{len(cases)} launches on an {gpu}, {record['date'][:10]}, Nsight Compute "
        f"{record['ncu']}: the rungs at {most} shapes each, in float and double{few}, and "
        "kernels that are no matrix multiplication (`tilewise/kernels/counted`). In all of them "
        "equal:",
        "",
        *(f"- `{name}`: `{record['metrics'][name]}`" for name in (*exact, *equal)),
        "",
        "| differs | in | the most, as emulator / hardware | why |",
        "| --- | ---: | --- | --- |",
    ]
    for name, found in differing.items():
        if found:
            case = max(found, key=lambda each: _distance(each, name))
            ours, theirs = case["emulator"][name], case["hardware"][name]
            lines.append(
                f"| `{name}` | {len(found)} of {len(cases)} | {ours:,} / {theirs:,}, "
                f"`{case['name']}` | {REASONS[name]} |"
            )
    return "\n".join(lines) + "\n"


def _differing(cases: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """The cases where the emulator's count, which is kept only then, is not the hardware's."""
    return [
        case for case in cases
        if name in case["hardware"]
        and case["emulator"].get(name, case["hardware"][name]) != case["hardware"][name]
    ]  # fmt: skip


def _distance(case: Mapping[str, Any], name: str) -> float:
    ours, theirs = case["emulator"][name], case["hardware"][name]
    return float(abs(ours - theirs) / max(ours, theirs))


def page(old: str, record: Mapping[str, Any]) -> str:
    """The page with that part as the record has it."""
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE.name} has no {BEGIN!r}"
    assert end, f"{PAGE.name} has no {END!r}"
    return f"{before}{BEGIN}{text(record)}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), json.loads(RECORD.read_text())))
