"""Compare the counters of Nsight Compute on a GPU with the emulator's, case by case.

    python benchmarks/counters.py [--json benchmarks/results/counters_h200.json] [--only WORDS]

Each case of tilewise.lens.hardware_cases is launched once under Nsight Compute and once on the
emulator, with the same arguments. A row is printed for each case: equal, or which counters differ.
The exit code is 1 if a counter differs that must be equal (EXACT of tilewise.lens.metrics) or a
result of the emulator is wrong, and 2 if this machine's counters can't be read.
"""

from __future__ import annotations

from command_line import add_json, parser_of

from tilewise.errors import DeviceUnavailableError
from tilewise.lens import hardware_cases
from tilewise.lens.agreement import agreement, differing
from tilewise.lens.metrics import EXACT, METRICS
from tilewise.lens.nsight import measure
from tilewise.provenance import write


def main() -> None:
    """Count on both, print the differences, and write the record."""
    parser = parser_of(__doc__)
    add_json(parser)
    parser.add_argument("--only", metavar="WORDS", help="cases with this in their name")
    options = parser.parse_args()
    if options.json and options.only:
        parser.error("--json keeps every case, and --only leaves some out: give one of them")
    chosen = [spec for spec in hardware_cases.CASES if (options.only or "") in spec.name]
    if not chosen:
        parser.error(f"no case has {options.only!r} in its name")
    try:
        measured = measure([hardware_cases.make(spec) for spec in chosen])
    except DeviceUnavailableError as error:
        parser.error(str(error))
    cases = []
    for spec, found in zip(chosen, measured, strict=True):
        case = agreement(spec, found)
        cases.append(case)
        print(f"{spec.name:62s} {'DIFFERS' if case.wrong else 'equal'}")
        print("".join(f"    {words}\n" for words in case.wrong), end="", flush=True)
    records = [case.record for case in cases]
    failed = sum(bool(case.wrong) for case in cases)
    print(f"{len(cases) - failed} of {len(cases)} cases equal")
    print("the other counters, and in how many cases they differ:")
    for name in (name for name in METRICS if name not in EXACT):
        times, there = differing(records, name)
        print(f"  {name:24s} {times} of {there}")
    if options.json:
        metrics = {row.name: row.metric for row in cases[-1].rows}
        write(options.json, {"ncu": measured[0].ncu, "metrics": metrics, "cases": records})
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
