"""Launches on the emulator within limits."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tilewise.devices.emulator.instructions.printf import format_printf
from tilewise.errors import LimitError
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport
from tilewise.limits import Limits

pytestmark = pytest.mark.usefixtures("ptx_alone")

HEAD = 'extern "C" __global__ void k(int n, volatile int* x) {\n'
ENDLESS = {
    "a loop": "while (1)\n    x[0] = n;\n}",
    "an empty loop": 'while (1)\n    asm volatile("");\n}',
    # They count their polls, and may give up one day: else that they wait forever is a finding.
    "a lock that nobody releases": (
        "while (atomicCAS((int*)x, 0, 1) != 0)\n    ++n;\nx[1] = n;\n}"
    ),
    "a flag, while others wait at a barrier": (
        "__shared__ volatile int flag;\nif (threadIdx.x == 0) flag = 0;\n__syncthreads();\n"
        "if (threadIdx.x == 0)\n    while (flag == 0)\n        ++n;\n__syncthreads();\nx[1] = n;\n}"
    ),
    "a recursion that branches": (
        "struct F { static __device__ __noinline__ int f(int n, volatile int* x) {\n"
        "    return n == 0 ? x[0] : f(n - 1, x) + f(n - 1, x); } };\nx[0] = F::f(60, x);\n}"
    ),
}


def run(body: str, limits: Limits | None, blocks: int = 2, checks: str = "raise") -> LaunchReport:
    x = np.zeros(8, np.int32)
    Kernel(HEAD + body, "k").compile()  # in this process: the limits are the launch's alone
    kernel = Kernel(HEAD + body, "k", limits=limits)
    try:
        return kernel.launch(blocks, 64, (5, x), device="emulator", checks=checks)
    except LimitError:
        assert not x.any()
        raise


@pytest.mark.sampled(5)
@pytest.mark.parametrize("what", ENDLESS)
@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(seconds=0.3), "seconds"),
        (Limits(instructions=20_000), "instructions"),
        (Limits(seconds=None, instructions=20_000, memory=None, output=None), "instructions"),
    ],
)
def test_what_does_not_end_is_stopped(what: str, limits: Limits, limit: str) -> None:
    begin = time.process_time()
    with pytest.raises(LimitError) as caught:
        run(ENDLESS[what], limits)
    assert time.process_time() - begin < (5 if limit == "seconds" else 30)
    found = caught.value
    assert found.limit == limit
    assert found.value == getattr(limits, limit)
    rows = (HEAD + ENDLESS[what]).splitlines()
    assert 1 < found.line <= len(rows)
    if "loop" in what:
        assert found.line in (2, 3)
    assert f"<source>:{found.line}: the launch was stopped: limit of" in str(found)


def test_instructions_are_reached_at_one_place() -> None:
    body = "for (int i = 0; i < 100000; ++i)\n    x[i % 8] = i;\n}"
    places = set()
    for _ in range(2):
        with pytest.raises(LimitError) as caught:
            run(body, Limits(instructions=50_000))
        places.add(str(caught.value))
    assert len(places) == 1


def test_a_launch_within_its_limits_is_as_without() -> None:
    body = 'for (int i = 0; i < n; ++i) printf("%d ", i);\n}'
    with_limits, without = run(body, Limits()), run(body, None)
    assert with_limits.counters == without.counters
    assert with_limits.output == without.output
    assert with_limits.launch.limits == Limits()
    counters = without.counters
    assert counters is not None
    run(body, Limits(instructions=counters.warp_instructions, output=len(without.output)))
    with pytest.raises(LimitError, match="instructions"):
        run(body, Limits(instructions=counters.warp_instructions - 1))
    with pytest.raises(LimitError, match="bytes of output"):
        run(body, Limits(output=len(without.output) - 1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "body",
    [
        '\nprintf("%1000000000d", n);\n}', '\nprintf("%.1000000000d", n);\n}',
        '\nprintf("%.1000000000f", 1.0);\n}', '\nprintf("%*d", 1000000000, n);\n}',
        '\nprintf("%900000d%900000d", n, n);\n}', '\nwhile (1) printf("again\\n");\n}',
    ],
)  # fmt: skip
def test_output_is_bounded(body: str) -> None:
    begin = time.process_time()
    with pytest.raises(LimitError, match=r"<source>:3: .*limit of 1,048,576 bytes of output"):
        run(body, Limits())
    assert time.process_time() - begin < 20


def test_a_format_is_as_long_as_it_may_be() -> None:
    assert format_printf(b"%5d", b"\1\0\0\0", lambda _: b"", 5) == "    1"
    with pytest.raises(OverflowError, match="longer than 4 bytes"):
        format_printf(b"%5d", b"\1\0\0\0", lambda _: b"", 4)
    with pytest.raises(OverflowError, match="longer than 2 bytes"):
        format_printf(b"abc", b"", lambda _: b"", 2)


def test_memory_is_bounded() -> None:
    body = "int a[1500000000];\nfor (int i = 0; i < n; ++i) a[i * 7919] = i;\nx[0] = a[n];\n}"
    with pytest.raises(LimitError, match=r"<source>:\d+: .*limit of 4 GiB of memory"):
        run(body, Limits(), checks="collect")
    # Blocks that hold less run a few at a time.
    body = "int a[30000];\nfor (int i = 0; i < n; ++i) a[i * 7919 % 30000] = i;\nx[0] = a[0];\n}"
    run(body, Limits(memory=64 << 20), blocks=32, checks="collect")
    with pytest.raises(LimitError, match=r"limit of 4 MiB of memory"):
        run(body, Limits(memory=4 << 20), checks="collect")


def test_a_deep_stack_is_bounded() -> None:
    body = (
        "struct F { static __device__ __noinline__ int f(int n, volatile int* x) {\n"
        "    int a[4000]; a[n] = x[0]; x[1] = a[n / 2 * 2];\n"
        "    return n == 0 ? 0 : f(n - 1, x) + a[n]; } };\nx[0] = F::f(900, x);\n}"
    )
    with pytest.raises(LimitError, match=r"<source>:\d+: .*limit of 64 MiB of memory"):
        run(body, Limits(memory=64 << 20), checks="off")


def test_a_profile_is_stopped_too() -> None:
    x = np.zeros(8, np.int32)
    Kernel(HEAD + ENDLESS["a loop"], "k").compile()
    kernel = Kernel(HEAD + ENDLESS["a loop"], "k", limits=Limits(seconds=0.3))
    with pytest.raises(LimitError, match=r"<source>:[23]: .*0\.3 seconds"):
        kernel.profile(1000, 64, (5, x))
