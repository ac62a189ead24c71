"""What is noted and no finding, what makes it one, and how many threads a message counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewise.devices import Device
from tilewise.devices.emulator.checks import clocks
from tilewise.errors import BarrierError, CheckError, RaceError
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport

pytestmark = pytest.mark.usefixtures("uncounted")

LEAVES = """
    if (t >= 40) return;
    __syncthreads();
    out[t] = t;
"""
LEAVES_ITS_WARP = """
    if (t >= 40) return;
    __syncwarp();
    out[t] = t;
"""
SAME_FLAG = """
    __shared__ volatile int flag;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 3) flag = 1;
    if (t > 40) flag = 1;
    __syncthreads();
    out[t] = flag;
"""
SAME_FLAG_BEHIND_AN_MBARRIER = (
    """
    __shared__ unsigned long long b;
    unsigned at = (unsigned)__cvta_generic_to_shared(&b);
    if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(at) : "memory");
"""
    + SAME_FLAG
)


def launch(emulator: Device, body: str, grid: int = 1, **options: Any) -> LaunchReport:
    source = 'extern "C" __global__ void k(int* out) {\n    int t = threadIdx.x;\n' + body + "}\n"
    args = (np.zeros(4096, np.int32),)
    return Kernel(source, "k").launch(grid, 64, args, device=emulator, **options)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (LEAVES, BarrierError, "24 threads of its block"),
        (LEAVES_ITS_WARP, BarrierError, "24 threads of its block"),
        (SAME_FLAG, RaceError, "the same value"),
        (SAME_FLAG_BEHIND_AN_MBARRIER, RaceError, "the same value"),
    ],
)
def test_notes_raise_where_that_is_asked(
    emulator: Device, body: str, error: type[CheckError], words: str
) -> None:
    report = launch(emulator, body, grid=3)
    assert report.findings == ()
    (note,) = report.notes
    assert words in note
    assert note.startswith("<source>:")
    with pytest.raises(error, match=words) as caught:
        launch(emulator, body, grid=3, checks="strict")
    assert str(caught.value.findings[0]).endswith(note.partition("thread (")[2])


def test_strict_raises_at_findings_too(emulator: Device) -> None:
    with pytest.raises(BarrierError, match="go around it"):
        launch(emulator, "    if (t & 1) __syncthreads();\n    out[t] = t;\n", checks="strict")


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        ("    if (t & 1) __syncthreads();\n    out[t] = t;\n", ("and 32 threads", "and 31 other")),
        (
            "    if (t < 20) __syncthreads();\n    else __syncthreads();\n    out[t] = t;\n",
            ("while 44 other", "and 19 other"),
        ),
        ("    if (t < 8) __syncwarp();\n    out[t] = t;\n", ("for 24 threads",)),
    ],
)
def test_threads_of_one_block_are_counted(
    emulator: Device, body: str, counts: tuple[str, ...]
) -> None:
    report = launch(emulator, body, grid=8, checks="collect")
    (finding,) = report.findings
    for count in counts:
        assert count in finding.message


def test_races_in_global_memory_are_looked_for_where_that_is_asked(emulator: Device) -> None:
    body = "    out[t] = t;\n    out[t + 100] = out[63 - t];\n"
    assert launch(emulator, body).findings == ()
    with pytest.raises(RaceError, match=r"reads out\[63\] in global memory"):
        launch(emulator, body, global_races=True)


def test_a_race_between_blocks_names_the_other_block(emulator: Device) -> None:
    body = """
    if (t == 0 && blockIdx.x == 0) out[3] = 5;
    if (t == 0 && blockIdx.x == 1) out[3] = 6;
"""
    report = launch(emulator, body, grid=2, checks="collect", global_races=True)
    (finding,) = report.findings
    assert (finding.array, finding.index, finding.block) == ("out", 3, (1, 0, 0))
    assert "a thread of block (0, 0, 0)" in finding.message


def test_races_by_more_variables_than_can_be_remembered_are_not_looked_for(
    emulator: Device,
) -> None:
    source = """extern "C" __global__ void k(int* out, int each) {
        int t = blockIdx.x * blockDim.x + threadIdx.x;
        for (int i = 0; i < each; ++i) { __threadfence(); atomicAdd(out + t + i * 2048, 1); }
    }"""
    for each, notes in ((1, 0), (16, 1)):
        out = np.zeros(2048 * each, np.int32)
        report = Kernel(source, "k").launch(8, 256, (out, each), device=emulator, global_races=True)
        assert (out == 1).all()
        assert len(report.notes) == notes
    assert "races in global memory were not looked for: 2,048 " in report.notes[0]
    assert "32,769 variables" in report.notes[0]


def test_shared_memory_is_looked_at_in_parts_where_clocks_would_take_too_much(
    emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
    __shared__ int s[64];
    s[t] = t;
    __syncwarp();
    if (blockIdx.x == 3) out[t] = s[63 - t];
"""
    whole = launch(emulator, body, grid=8, checks="collect").findings
    assert "reads s[63]" in whole[0].message
    monkeypatch.setattr(clocks, "_MOST_BYTES", 100)  # enough for one block
    assert launch(emulator, body, grid=8, checks="collect").findings == whole
    monkeypatch.setattr(clocks, "_MOST_BYTES", 8)
    report = launch(emulator, body, grid=8, checks="collect")
    assert report.findings == ()
    (note,) = report.notes
    assert note.startswith("some races in shared memory were not looked for: 9 threads or groups")
