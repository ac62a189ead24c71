"""Every planted fault is found where it is."""

from __future__ import annotations

import numpy as np
import pytest
from faults import (
    barriers,
    copies,
    global_races,
    memory,
    partial_barriers,
    pipelines,
    right,
    right_copies,
    shared_races,
)
from faults.cases import Case, arguments

from tilewise.devices import Device
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport

CASES: list[Case] = [
    case
    for room in (shared_races, partial_barriers, copies, pipelines, barriers, memory, global_races)
    for case in room.CASES
]

RIGHT: list[Case] = [*right.CASES, *right_copies.CASES, *pipelines.RIGHT, *global_races.RIGHT]


pytestmark = pytest.mark.usefixtures("no_machine_code")


@pytest.mark.parametrize(("some", "least"), [(CASES, 240), (RIGHT, 80)])
def test_cases_are_many_and_distinct(some: list[Case], least: int) -> None:
    assert len(some) >= least
    assert len({case.name for case in some}) == len(some)
    assert len({case.source for case in some}) == len(some)


def run(case: Case, emulator: Device, counts: bool = False) -> LaunchReport:
    a, out = arguments()
    given = emulator.empty(out.shape, out.dtype) if case.empty else out
    return Kernel(case.source, "k").launch(
        case.grid, case.threads, (a, given), shared=case.shared, device=emulator,
        checks="collect", global_races=case.global_races, counts=counts,
    )  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fault(case: Case, emulator: Device) -> None:
    """There may be more findings, but the first of its kind is at its line."""
    findings = run(case, emulator).findings
    assert findings, "nothing was found"
    found = [finding for finding in findings if finding.kind == case.kind]
    assert found, [str(finding) for finding in findings]
    assert found[0].line == case.line, str(found[0])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_right_kernel(case: Case, emulator: Device) -> None:
    assert [str(finding) for finding in run(case, emulator).findings] == []


@pytest.mark.sampled(24)
@pytest.mark.parametrize("case", [*CASES, *RIGHT], ids=lambda case: case.name)
def test_to_count_changes_no_finding(case: Case, emulator: Device) -> None:
    plain, counted = (run(case, emulator, counts) for counts in (False, True))
    assert (plain.findings, plain.remarks, plain.output) == (
        counted.findings, counted.remarks, counted.output
    )  # fmt: skip
    assert plain.counters is None
    assert counted.counters is not None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "x[2000 + threadIdx.x] = 1;",
            "writes 4 bytes of global memory at x[2000], outside it (6,000 bytes) "
            "(and 1,023 other threads here)",
        ),
        (
            "__shared__ float s[2048]; s[threadIdx.x] = 1; __syncthreads(); "
            "x[threadIdx.x] = s[threadIdx.x + (int)x[0] * 2048];",
            "reaches s[2048], outside the block's 8,192 bytes of shared memory "
            "(and 1,023 other threads here)",
        ),
        (
            "if (threadIdx.x < 4) __syncthreads(); x[threadIdx.x] = 1;",
            "and 1,020 threads of its block go around it",
        ),
        (
            "if (threadIdx.x > 0) __syncthreads(); x[threadIdx.x] = 1;",
            "and 1 thread of its block goes around it, thread (0, 0, 0) (and",
        ),
    ],
)
def test_counts_have_separators_and_indices_are_as_in_code(
    body: str, told: str, emulator: Device
) -> None:
    kernel = Kernel(f'extern "C" __global__ void k(float* x) {{ {body} }}', "k")
    x = np.ones(1500, np.float32)
    report = kernel.launch(1, 1024, (x,), device=emulator, checks="collect")
    assert told in report.findings[0].message


def test_a_race_with_one_of_several_readers_says_nothing_of_their_block() -> None:
    source = 'extern "C" __global__ void grow(int* x) { x[0] += 1; }'
    report = Kernel(source, "grow").launch(
        4, 1, (np.zeros(1, np.int32),), device="emulator", checks="collect", global_races=True
    )
    told = str(report.findings[0])
    assert "after the read of another thread (line 1)" in told
    assert "of its block" not in told
