"""What the emulator counts of single instructions is what Nsight Compute read on an H200.

``benchmarks/metric_candidates.py`` measured the launches of tilewise.lens.instruction_cases. Kept
of each is what the counters' metrics said; what is not among them was asked for and is 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from reference import ROOT, thorough

from tilewise.lens.agreement import counts, emulate
from tilewise.lens.case_spec import Spec
from tilewise.lens.hardware_cases import CASES
from tilewise.lens.instruction_cases import KINDS
from tilewise.lens.metrics import EXACT, NEAR, Hardware, hardware

KEPT = ROOT / "benchmarks" / "results" / "instructions_h200.json"
GMMA_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"
L2_READS = "lts__t_sectors_srcunit_tex_op_read.sum"
WAVEFRONT = 128  # bytes

# No rule is known that says what these lanes meet in: what the emulator counts as wavefronts of
# lanes that copy between random places, and what the H200 did.
UNEQUAL = {
    "async_copy-uint32-4x0-random": (478, 457),
    "async_copy-uint32-8x0-random": (783, 791),
    "async_copy-uint32-16x0-random": (1320, 1368),
    "async_copy-uint32-16x1-random": (2552, 2719),
}


@cache
def measured() -> dict[str, Hardware]:
    """What the hardware counted, by the names of cases."""
    record: dict[str, Any] = json.loads(KEPT.read_text())
    zeros = dict.fromkeys(record["asked"], "0")
    return {
        case["name"]: hardware(
            case["name"].partition("-")[0],
            {**zeros, **{name: str(value) for name, value in case["metrics"].items()}},
            record["machine"]["gpu"], record["ncu"], record["asked"],
        )
        for case in record["cases"]
    }  # fmt: skip


SPECS = [spec for spec in CASES if spec.kernel in KINDS]


def cases() -> Iterator[Any]:
    """Every case; of copies all are quick, of each other kernel one of each shape is."""
    seen = set()
    for spec in SPECS:
        kind = (spec.kernel, spec.shape)
        is_slow = kind in seen and not spec.kernel.endswith("_copy")
        yield pytest.param(spec, marks=[thorough] * is_slow, id=spec.name)
        seen.add(kind)


def test_every_case_was_measured() -> None:
    assert set(measured()) == {spec.name for spec in SPECS}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spec", list(cases()))
@pytest.mark.usefixtures("emulator")
def test_counts_are_those_of_the_hardware(spec: Spec) -> None:
    report, right = emulate(spec)
    counted, found = counts(report), measured()[spec.name]
    assert right
    names = [name for name in EXACT if name in found.counters]
    # All but the bytes of wgmma, which are compared below, and of what no case has.
    assert set(EXACT) - set(names) <= {"wgmma_bytes"}
    assert {name: counted[name] for name in names} == {name: found.counters[name] for name in names}
    assert counted["wgmma_bytes"] == WAVEFRONT * found.metrics[GMMA_WAVEFRONTS]
    copies = tuple((counted[name], found.counters[name]) for name in NEAR[:2])
    if spec.name in UNEQUAL:
        assert copies[0] == UNEQUAL[spec.name]
    else:
        assert all(ours == theirs for ours, theirs in copies)
    # What a multicast reads once reaches every block of the cluster.
    blocks = spec.shape[2] if spec.kernel == "bulk_copy" else 1
    assert NEAR[2:] == ("bulk_load_sectors",)
    assert found.counters["bulk_load_sectors"] == blocks * counted["bulk_load_sectors"]
    if blocks > 1:
        assert found.metrics[L2_READS] == counted["bulk_load_sectors"]
