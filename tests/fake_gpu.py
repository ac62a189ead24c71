"""Provide a fake GPU, whose launches all take a millisecond, and a machine without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewise.cli.main import main
from tilewise.compiler import Compiled
from tilewise.devices import Device
from tilewise.devices.arguments import bind
from tilewise.devices.emulator import Emulator
from tilewise.devices.gpu import Gpu
from tilewise.errors import DeviceUnavailableError
from tilewise.launch import Launch


class FakeGpu(Gpu):
    """A GPU of four multiprocessors, on which every launch takes a millisecond."""

    def __init__(self, description: str = "NVIDIA H200, made up") -> None:
        self.arch, self.description = "sm_90a", description
        self.multiprocessors, self.l2_bytes = 4, 1 << 20
        self.launches: dict[str, Launch] = {}

    def array(self, host: Any) -> Any:
        return host

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return np.empty(shape, dtype)

    def blocks_per_multiprocessor(self, compiled: Compiled, threads: int, shared: int = 0) -> int:
        return 3

    def measure(self, compiled: Compiled, launch: Launch, **_: Any) -> float:
        bind(compiled.name, compiled.parameters, launch.args)  # raises if they do not fit
        self.launches[compiled.name] = launch
        return 1e-3


def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the machine has no GPU; the terminal has 80 columns."""

    def device(name: str = "auto") -> Device:
        if name == "gpu":
            raise DeviceUnavailableError("no GPU can be used: none is here")
        return Emulator()

    monkeypatch.setattr("tilewise.devices.get_device", device)
    monkeypatch.setenv("COLUMNS", "80")


def said(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    """Run a command line; return its exit code, standard output and standard error."""
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err
