"""What a kernel says: printf, assert, trap."""

from __future__ import annotations

import numpy as np
import pytest
from reference import Launcher

from tilewise.devices import Device
from tilewise.errors import KernelAssertError


def test_formats(launch: Launcher) -> None:
    report = launch(
        "printing", "formats", 1, 1, -42, 3000000000, -(2**40), 1234.5678, np.float32(0.5)
    )
    assert report.output.splitlines() == [
        "plain",
        "-42 -42 3000000000 b2d05e00 B2D05E00 26264057000 C|  -42|-42  |-0042|-42|-42",
        f"{-(2**40)} {2**64 - 2**40} ffffff0000000000 {-(2**40)} -42",
        "1234.567800 1234.568    1234.57 1234.6    | 1.234568e+03 1.23E+03 1234.57 0.5",
        "one and        two and three  and fo%",
        "   -42",
        "(nil)",
    ]


def test_each_thread_prints_once(launch: Launcher) -> None:
    a = np.array([3, 0, -1, 8, 9], np.int32)
    report = launch("printing", "each_thread", 2, 5, a)
    lines = [f"thread {t} of block {b}: {a[t]}" for b in range(2) for t in range(5) if a[t] > 0]
    assert sorted(report.output.splitlines()) == sorted(lines)


def test_printf_returns_the_number_of_arguments(launch: Launcher) -> None:
    out = np.zeros(1, np.int32)
    report = launch("printing", "returned", 1, 1, out)
    assert report.output == "1 2\n"
    assert out[0] == 2


def test_an_assertion_that_holds(launch: Launcher) -> None:
    assert launch("printing", "asserting", 1, 32, 20, np.arange(20, dtype=np.int32)).output == ""


# On a GPU a failed assertion takes the process's context with it.
def test_an_assertion_that_fails(emulator: Device, launch: Launcher) -> None:
    a = np.arange(100, dtype=np.int32)
    a[70] = -1
    with pytest.raises(KernelAssertError) as caught:
        launch("printing", "asserting", 2, 64, 100, a)
    message = str(caught.value)
    assert "a[i] >= 0" in message
    assert "printing.cu" in message
    assert "(1, 0, 0)" in message
    assert "(6, 0, 0)" in message


def test_a_trap(emulator: Device, launch: Launcher) -> None:
    with pytest.raises(KernelAssertError):
        launch("printing", "trapping", 1, 32, 3, np.array([1, -1, 2], np.int32))
