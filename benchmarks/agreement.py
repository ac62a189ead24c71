"""Write which counters of the emulator equal those of Nsight Compute into docs/profiling.md.

    python benchmarks/agreement.py

The record is benchmarks/results/counters_h200.json, as ``benchmarks/counters.py`` and ``keep.py``
write it. The part of the page between the two comments is replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from command_line import takes_no_options
from pages import DOCS, RESULTS, gpu_of, read

from tilewise.ladder.rungs import rungs_of
from tilewise.lens.metrics import EXACT, NEAR

RECORD = RESULTS / "counters_h200.json"
PAGE = DOCS / "profiling.md"
PAGES = {PAGE: (RECORD,)}
BEGIN, END = "<!-- agreement: python benchmarks/agreement.py -->\n", "<!-- /agreement -->\n"

# The reasons of the counters that differ in some launch.
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
    """Return the part of the page: the launches, the equal counters, and those that differ."""
    cases, gpu = record["cases"], gpu_of(record)
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
    """Return the cases in which a counter differs; only then is the emulator's count kept."""
    return [
        case for case in cases
        if name in case["hardware"]
        and case["emulator"].get(name, case["hardware"][name]) != case["hardware"][name]
    ]  # fmt: skip


def _distance(case: Mapping[str, Any], name: str) -> float:
    ours, theirs = case["emulator"][name], case["hardware"][name]
    return float(abs(ours - theirs) / max(ours, theirs))


def page(old: str, record: Mapping[str, Any]) -> str:
    """Return the page with the part between the comments as the record has it."""
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE.name} has no {BEGIN!r}"
    assert end, f"{PAGE.name} has no {END!r}"
    return f"{before}{BEGIN}{text(record)}{END}{after}"


def main() -> None:
    """Write the page."""
    takes_no_options(__doc__)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), read(RECORD)), encoding="utf-8")


if __name__ == "__main__":
    main()
