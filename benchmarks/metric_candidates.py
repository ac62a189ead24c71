"""Read candidate metrics of Nsight Compute for each case, to find the one of each counter.

    python benchmarks/metric_candidates.py [--only WORDS] [--json FILE] [--quiet] [--everything]

For each launch of tilewise.lens.instruction_cases, every candidate metric that is not 0 is printed
beside the emulator's counters. One run of Nsight Compute takes several cases, and the file is
written after each run. With --everything, only the first case of each kernel is launched, with
every metric of this GPU that may be related, as ``ncu --query-metrics`` lists them. At the end, the
metrics that most often equal each counter are printed. The exit code is 2 if this machine's
counters can't be read, and 1 if some case can't be launched.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from command_line import add_json, parser_of

from tilewise.errors import DeviceUnavailableError, TilewiseError
from tilewise.lens import hardware_cases, instruction_cases
from tilewise.lens.agreement import counts, emulate
from tilewise.lens.case_spec import Spec
from tilewise.lens.metrics import Hardware
from tilewise.lens.nsight import measure
from tilewise.provenance import write

MOST_AGREEING = 3  # metrics that are named of each counter
TOGETHER = 40  # cases, at most, in one run of Nsight Compute
_SHARED = "mem_shared"
CANDIDATES = tuple(
    f"{name}.sum"
    for name in (
        "l1tex__data_pipe_lsu_wavefronts",
        *(
            f"l1tex__data_{what}_{_SHARED}{op}"
            for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
            for op in ("", *(f"_op_{op}" for op in (
                "ld", "st", "atom", "ldgsts", "ldsm", "stsm", "gmma", "misc", "red",
            )))
        ),
        "l1tex__data_bank_reads", "l1tex__data_bank_writes",
        *(
            f"smsp__sass_l1tex_data_{what}_{_SHARED}{op}"
            for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
            for op in ("", *(f"_op_{op}" for op in ("ld", "st", "ldsm", "stsm", "ldgsts", "atom")))
        ),
        *(f"smsp__inst_executed_op_{op}" for op in (
            "ldsm", "stsm", "ldgsts", "ldgsts_cache_access", "ldgsts_cache_bypass", "shared_ld",
            "shared_st", "shared_stsm", "shared_atom", "shared_red", "shared_atom_cas",
            "shared_gmma", "tma", "tma_ld", "tma_st", "tma_red",
        )),
        *(f"smsp__sass_inst_executed_op_{op}" for op in (
            "ldsm", "stsm", "ldgsts", "ldgsts_cache_access", "ldgsts_cache_bypass", "shared_gmma",
            "shared_stsm", "shared_atom", "tma", "tma_ld", "tma_st", "tma_red",
        )),
        *(f"smsp__sass_data_bytes_{_SHARED}_op_{op}" for op in ("ldsm", "ldgsts", "gmma")),
        *(
            f"l1tex__m_{way}_{what}_mem_global_op_tma_{op}"
            for way, op in (
                ("xbar2l1tex_read", "ld"), ("xbar2l1tex_read", "ld_dest_self"),
                ("xbar2l1tex_read", "ld_dest_multicast"), ("l1tex2xbar_write", "st"),
                ("l1tex2xbar_write", "red"),
            )
            for what in ("bytes", "sectors")
        ),
        *(f"l1tex__m_l1tex2xbar_read_requests_mem_global_op_tma_ld{to}" for to in (
            "", "_dest_self", "_dest_multicast",
        )),
        "l1tex__m_xbar2l1tex_read_bytes_pipe_tma", "l1tex__m_l1tex2xbar_write_bytes_pipe_tma",
        "l1tex__tmain_requests", "smsp__l1tex_tmain_requests", "sm__inst_executed_pipe_tma",
        "sm__inst_executed_pipe_tensor_op_gmma", "sm__inst_executed_pipe_uniform",
        *(
            f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}"
            for what in ("requests", "sectors")
            for op in ("ld", "ldgsts", "ldgsts_cache_access", "ldgsts_cache_bypass")
        ),
        *(
            f"smsp__sass_l1tex_t_{what}_pipe_lsu_mem_global_op_ldgsts{cache}"
            for what in ("requests", "sectors")
            for cache in ("", "_cache_access", "_cache_bypass")
        ),
        "lts__t_sectors_srcunit_tex_op_read", "lts__t_sectors_srcunit_tex_op_write",
    )
)  # fmt: skip
"""What may count one of these instructions on a GPU of compute capability 9.0."""

LISTED = re.compile(
    r"^(?=\S*(?:ldsm|stsm|ldgsts|gmma|mem_shared|_tma|tmain|bulk|dshared|multicast))"
    r"(?:l1tex|smsp|sm)__\S*"
)
"""Metrics of ``ncu --query-metrics`` that may have to do with these instructions."""
_NO_COUNT = re.compile(r"cycles|throughput|average|pcsamp|ideal|stalled|pct|latency")


def listed() -> set[str]:
    """Return the metrics of this GPU by ``ncu --query-metrics``; none if it prints none."""
    if (program := shutil.which("ncu")) is None:
        return set()  # and measuring says so
    done = subprocess.run([program, "--query-metrics"], capture_output=True, text=True, check=False)
    words = (line.split(maxsplit=1) for line in done.stdout.splitlines())
    return {f"{each[0]}.sum" for each in words if each and "__" in each[0]}


def candidates(there: set[str], everything: bool) -> list[str]:
    """Return the metrics to read: a metric that ncu does not know costs a run.

    ``there`` may lack the metrics that ncu counts by instrumented instructions.
    """
    is_whole = any("__sass_" in name for name in there)
    known = [
        name for name in CANDIDATES
        if not there or name in there or ("__sass_" in name and not is_whole)
    ]  # fmt: skip
    more = (name for name in sorted(there) if LISTED.match(name) and not _NO_COUNT.search(name))
    return list(dict.fromkeys((*known, *(more if everything else ()))))


def shown(spec: Spec, found: Hardware, counted: dict[str, int]) -> list[str]:
    """Return the lines that are printed for a case."""
    lines = [spec.name]
    for title, values in (("emulator", counted), ("ncu", dict(found.metrics))):
        chosen = {
            name.removesuffix(".sum"): value
            for name, value in values.items()
            if value and not name.startswith("launch__")
        }
        lines += [f"  {title:8s} {name:90s} {value:>8,}" for name, value in chosen.items()]
    return lines


def agreeing(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return, for each kernel and counter, the metrics that equal it in the most cases."""
    lines = []
    for kernel, group in groupby(records, key=lambda record: record["name"].partition("-")[0]):
        cases = list(group)
        metrics = sorted({name for case in cases for name in case["metrics"]})
        for counter in sorted({name for case in cases for name in case["emulator"]}):
            if not any(case["emulator"][counter] for case in cases):
                continue
            equal = {
                metric: sum(
                    case["metrics"].get(metric, 0) == case["emulator"][counter] for case in cases
                )
                for metric in metrics
            }
            best = sorted(metrics, key=lambda metric: -equal[metric])[:MOST_AGREEING]
            found = ", ".join(f"{name.removesuffix('.sum')} {equal[name]}" for name in best)
            lines.append(f"{kernel} {counter}: of {len(cases)} cases equal: {found}")
    return lines


def groups(specs: Sequence[Spec], everything: bool) -> Iterator[list[Spec]]:
    """Yield the cases of one kernel each that one run of Nsight Compute takes together."""
    for _, of_kernel in groupby(specs, key=lambda spec: spec.kernel):
        mine = list(of_kernel)[: 1 if everything else None]
        yield from (mine[first : first + TOGETHER] for first in range(0, len(mine), TOGETHER))


def main() -> None:
    """Read the metrics, print them, and write the record after each run of Nsight Compute."""
    parser = parser_of(__doc__)
    add_json(parser)
    parser.add_argument("--only", metavar="WORDS", help="cases with this in their name")
    parser.add_argument("--quiet", action="store_true", help="print no metrics, only the file's")
    parser.add_argument(
        "--everything", action="store_true", help="every metric of the GPU, for few cases"
    )
    options = parser.parse_args()
    chosen = [
        spec for spec in hardware_cases.CASES
        if spec.kernel in instruction_cases.KINDS and (options.only or "") in spec.name
    ]  # fmt: skip
    if not chosen:
        parser.error(f"no case has {options.only!r} in its name")
    records: list[dict[str, Any]] = []
    asked = candidates(listed(), options.everything)
    failed = False
    for group in groups(chosen, options.everything):
        begun = time.monotonic()
        try:
            found = measure([hardware_cases.make(spec) for spec in group], asked)
        except DeviceUnavailableError as error:
            parser.error(str(error))
        except TilewiseError as error:
            print(f"{group[0].name} to {group[-1].name}: {error}", flush=True)
            failed = True
            continue
        for spec, each in zip(group, found, strict=True):
            counted = counts(emulate(spec)[0])
            if not options.quiet:
                print("\n".join(shown(spec, each, counted)), flush=True)
            kept = {name: value for name, value in each.metrics.items() if value}
            records.append({"name": spec.name, "metrics": kept, "emulator": counted})
        asked = [metric for metric in asked if metric in found[-1].metrics]  # no others are there
        seconds = time.monotonic() - begun
        print(f"{group[0].kernel}: {len(group)} cases in {seconds:.1f} s", flush=True)
        if options.json:
            write(options.json, {"ncu": found[-1].ncu, "there": asked, "cases": records})
    print("\n".join(agreeing(records)))
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
