"""Compare the emulator's counters with those that Nsight Compute read for the same launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewise.devices import get_device
from tilewise.launch import LaunchReport
from tilewise.lens.case_spec import Spec
from tilewise.lens.compare import Row, compare
from tilewise.lens.hardware_cases import is_right, make
from tilewise.lens.metrics import EXACT, METRICS, Hardware, given_registers


def emulate(spec: Spec) -> tuple[LaunchReport, bool]:
    """Return the emulator's report of a case, and whether its result is correct."""
    case = make(spec)
    emulator = get_device("emulator")
    report = case.kernel.launch(case.grid, case.block, case.args, case.shared, emulator)
    return report, is_right(spec, make(spec).args, case.args)


def counts(report: LaunchReport) -> dict[str, int]:
    """Return the emulator's counters, and the registers that a thread is given."""
    assert report.counters is not None
    return {**report.counters.to_dict(), "registers": given_registers(report.resources.registers)}


def differences(counted: Mapping[str, int], found: Hardware) -> list[str]:
    """Return the counters that must be equal and are not, each in words.

    A counter that was not measured is among them, if the emulator counts anything.
    """
    rows = {row.name: row for row in compare(counted, found)}
    words = [f"{name}: not measured" for name in EXACT if name not in rows and counted[name]]
    for name in EXACT:
        if name in rows and not rows[name].equal:
            asked = [metric.lstrip("-") for each in METRICS[name] for metric in each]
            said = ", ".join(f"{found.metrics.get(metric, 'no')} {metric}" for metric in asked)
            words.append(f"{name}: {rows[name].emulator} on the emulator, on the GPU {said}")
    return words


def other_metrics(found: Hardware) -> dict[str, int]:
    """Return the values of Nsight Compute's second metrics for counters."""
    return {
        metric: found.metrics[metric]
        for name, counted in found.counters.items()
        for alternative in METRICS[name][1:]
        for metric in alternative
        if len(alternative) == 1  # alternatives that are a single metric
        and found.metrics.get(metric, counted) != counted
    }


@dataclass(frozen=True)
class Agreement:
    """One case on both devices.

    Attributes
    ----------
    spec : Spec
    rows : tuple of Row
        Every counter that was measured, with both counts.
    wrong : list of str
        The counters that disagree and must not, in words; empty if the case agrees.
    record : dict
        The case in the format of ``benchmarks/results/counters_h200.json``.
    """

    spec: Spec
    rows: tuple[Row, ...]
    wrong: list[str]
    record: dict[str, Any]


def agreement(spec: Spec, found: Hardware) -> Agreement:
    """Run a case on the emulator, and compare its counters with those that Nsight Compute read."""
    report, right = emulate(spec)
    counted = counts(report)
    wrong = differences(counted, found) + ([] if right else ["the emulator's result is wrong"])
    rows = compare(counted, found)
    record = {
        "name": spec.name,
        "spec": asdict(spec),
        "hardware": {row.name: row.hardware for row in rows},
        "emulator": {row.name: row.emulator for row in rows},
        "limits": dict(found.limits),
        "other_metrics": other_metrics(found),
    }
    return Agreement(spec, rows, wrong, record)


def differing(records: Sequence[Mapping[str, Any]], name: str) -> tuple[int, int]:
    """Return the number of records in which a counter differs, and in which it was measured."""
    there = [record for record in records if name in record["hardware"]]
    return sum(each["hardware"][name] != each["emulator"][name] for each in there), len(there)
