"""Tracebacks: a user sees their own call and the message, and all of it where they ask."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise
from tilewise.devices.gpu import Gpu
from tilewise.errors import CompileError, DeviceUnavailableError, LaunchError, TilewiseError
from tilewise.ladder.run import run
from tilewise.lens.profiling import profile as profile_product
from tilewise.tracebacks import VARIABLE, front_door

PACKAGE = Path(tilewise.__file__).parent
ONES = np.ones((8, 8), np.float32)
KERNEL = tilewise.Kernel(
    """
extern "C" __global__ void past(float* x) { x[threadIdx.x] = 1; }
extern "C" __global__ void split(float* x) {
    if (threadIdx.x < 40) __syncthreads();
    x[threadIdx.x] += 1;
    __syncthreads();
}
extern "C" __global__ void raced(float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void gone(float* x) { __trap(); }
""",
    "past",
)


def kernel(name: str) -> tilewise.Kernel:
    return tilewise.Kernel(KERNEL.source, name)


CALLS: dict[str, Callable[[], Any]] = {
    "compile": lambda: tilewise.Kernel("nonsense\n", "k").compile(),
    "no such kernel": lambda: kernel("other").launch(1, 1, (), device="emulator"),
    "out of bounds": lambda: KERNEL.launch(1, 128, (ONES,), device="emulator"),
    "profile": lambda: KERNEL.profile(1, 128, (ONES,)),
    "barrier": lambda: kernel("split").launch(1, 64, (ONES,), device="emulator"),
    "race": lambda: kernel("raced").launch(1, 64, (ONES,), device="emulator"),
    "trap": lambda: kernel("gone").launch(1, 64, (ONES,), device="emulator"),
    "limits": lambda: KERNEL.launch(1, 4096, (ONES,), device="emulator"),
    "run": lambda: run(kernel("other"), ONES, ONES, device="emulator"),
    "profile of a product": lambda: profile_product(kernel("other"), 4, 4, 4),
    "watch": lambda: tilewise.watch(kernel("other"), 4, 4, 4),
}


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def files(error: BaseException) -> list[Path]:
    return [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]


def raised(call: Callable[[], Any]) -> TilewiseError:
    with pytest.raises(TilewiseError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_only_the_callers_frames_are_shown(
    hidden: None, call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = raised(call)
    assert files(error) == [Path(__file__)] * 2  # `raised`, and the call in it
    text = "".join(traceback.format_exception(error))
    assert str(PACKAGE) + "/" not in text
    assert str(error) in text
    monkeypatch.setenv(VARIABLE, "1")
    whole = raised(call)
    assert any(PACKAGE in file.parents for file in files(whole))
    assert str(whole) == str(error)


def test_causes_are_shown_without_them_too(hidden: None) -> None:
    @front_door
    def fails() -> None:
        try:
            tilewise.Kernel("nonsense\n", "k").compile()
        except CompileError as error:
            raise LaunchError("this failed") from error

    error = raised(fails)
    assert isinstance(error.__cause__, CompileError)
    assert all(PACKAGE not in file.parents for file in files(error.__cause__))


def test_matmul(hidden: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(self: Gpu) -> None:
        raise DeviceUnavailableError("no GPU here")

    monkeypatch.setattr(Gpu, "__init__", unavailable)
    tilewise.get_device.cache_clear()
    try:
        error = raised(lambda: tilewise.matmul(ONES, ONES, device="gpu"))
    finally:
        tilewise.get_device.cache_clear()
    assert all(PACKAGE not in file.parents for file in files(error))


def test_another_error_keeps_its_frames(hidden: None) -> None:
    """It may be a mistake in tilewise."""
    with pytest.raises(TypeError) as caught:
        KERNEL.launch(1, 1, (), device="emulator")
    assert any(PACKAGE in file.parents for file in files(caught.value))


def test_a_frame_of_another_package_stays(hidden: None) -> None:
    @front_door
    def calls_back(function: Callable[[], None]) -> None:
        function()

    def fails() -> None:
        raise LaunchError("in a caller's own function")

    error = raised(lambda: calls_back(fails))
    assert traceback.extract_tb(error.__traceback__)[-1].name == "fails"


def test_a_front_door_is_what_it_was() -> None:
    assert tilewise.Kernel.launch.__doc__
    assert list(inspect.signature(run).parameters)[:4] == ["target", "a", "b", "c"]
