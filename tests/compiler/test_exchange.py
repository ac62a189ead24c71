"""Tools that compile in a process of their own: what becomes of one that does not answer."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tilewise.compiler import apart, confine, forking, starting
from tilewise.compiler.clock import Clock
from tilewise.compiler.nvrtc import Output
from tilewise.compiler.ptx import apart as assembling
from tilewise.errors import CompileError, LimitError
from tilewise.limits import Limits

START = "import os, signal, sys, time\nos.write(1, b'!')\nsys.stdin.buffer.read()\n"


def compiler(limits: Limits) -> Output:
    """Compile a kernel."""
    return apart.run("", "k.cu", [], limits=limits)


def assembler(limits: Limits) -> Output:
    """Assemble a module."""
    clock = Clock(limits.seconds, "k.cu")
    return assembling.run("", "k.cu", "sm_90a", "nvJitLink 13.0", limits, clock)


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are started, so that they run the programs of these tests."""
    monkeypatch.setattr(forking, "can_fork", lambda: False)


TOOLS = pytest.mark.parametrize("tool", [compiler, assembler])
Tool = Callable[[Limits], Output]


@TOOLS
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals")
@pytest.mark.parametrize(
    ("program", "how"),
    [
        (f"{START}os.kill(os.getpid(), signal.SIGSEGV)", "signal SIGSEGV"),
        (f"{START}os._exit(3)", "exit code 3"),
        (f"{START}os.write(1, b'tilewise'); os._exit(0)", "exit code 0"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGABRT)", "signal SIGABRT"),
    ],
)
def test_one_that_breaks_down(
    tool: Tool, program: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "_RUN", program)
    with pytest.raises(CompileError, match=rf"^k\.cu: the {tool.__name__} broke down \({how}\)"):
        tool(Limits())


@TOOLS
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere memory is not limited")
@pytest.mark.parametrize("number", ["SIGABRT", "SIGKILL"])
def test_one_that_gets_no_memory(tool: Tool, number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_RUN", f"{START}os.kill(os.getpid(), signal.{number})")
    with pytest.raises(LimitError, match="limit of 4 GiB of memory"):
        tool(Limits())
    with pytest.raises(CompileError, match=rf"broke down \(signal {number}\)"):
        tool(Limits(memory=None))
    monkeypatch.setattr(confine, "can_limit_memory", lambda: False)
    with pytest.raises(CompileError, match=rf"broke down \(signal {number}\)"):
        tool(Limits())


@TOOLS
def test_one_that_does_not_end(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewise.compiler.exchange._GRACE", 0.1)
    monkeypatch.setattr(starting, "_RUN", f"{START}time.sleep(60)")
    with pytest.raises(LimitError, match=r"limit of 0\.2 seconds"):
        tool(Limits(seconds=0.2))


@TOOLS
def test_one_that_does_not_start(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "START_SECONDS", 0.3)
    monkeypatch.setattr(starting, "_RUN", "import time\ntime.sleep(60)")
    with pytest.raises(CompileError, match=rf"the {tool.__name__} did not start: .* 0\.3 seconds"):
        tool(Limits())
