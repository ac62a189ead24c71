"""Launches that are written as text, on both devices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from signatures import SOURCE

from tilewise.devices import Device
from tilewise.errors import LaunchError, MemoryAccessError, UninitializedReadError
from tilewise.kernel import Kernel
from tilewise.limits import Limits
from tilewise.specs.results import ArrayResult
from tilewise.specs.run import LaunchResult, launch, prepare


def run(
    device: Device, name: str, grid: str, block: str, *args: str, shared: str = "0", **more: Any
) -> LaunchResult:
    ready = prepare(Kernel(SOURCE, name), args, grid, block, shared, arch=device.arch)
    return launch(ready, device=device, **more)


def test_one_line(device: Device) -> None:
    found = run(
        device, "saxpy", "ceil(n/256)", "256", "n=1000", "a=0.1", "x=random:n", "y=random:n",
        expect=["y = a*x + y", "x = x"],
    )  # fmt: skip
    assert found.correct
    assert found.report.launch.grid == (4, 1, 1)
    assert [each.rule for each in found.compared] == [
        "as near as rounding in float32 comes", "exactly"
    ]  # fmt: skip
    x, y = found.arrays
    assert (x.name, x.shape, x.dtype, x.changed) == ("x", (1000,), "float32", 0)
    assert y.changed == 1000
    assert y.mean == pytest.approx(float(found.results["y"].mean(dtype=np.float64)))
    assert y.first == tuple(float(each) for each in found.results["y"][:4])
    document = found.to_dict()
    assert document["arguments"]["n"] == "1000"
    assert document["expected"][0]["correct"]
    assert document["arrays"][1]["changed"] == 1000


def test_what_is_wrong_is_found(device: Device) -> None:
    found = run(
        device, "saxpy", "3", "256", "n=1000", "a=2", "x=ones:n", "y=zeros:n",
        expect=["y = a*x + y"],
    )  # fmt: skip
    assert not found.correct
    (compared,) = found.compared
    assert (compared.wrong, compared.first, compared.worst) == (232, (768,), (768,))
    assert (compared.got, compared.wanted) == (0, 2)


@pytest.mark.parametrize("out", ["empty:n,m", "zeros:n,m"])
def test_shapes_by_names_and_a_parameter_that_is_a_word_of_pythons(
    device: Device, out: str
) -> None:
    found = run(
        device, "transpose", "2,2", "32,32", "random:mxn", out, "m=40", "n=50",
        expect=["out = in.T"],
    )  # fmt: skip
    assert found.correct
    assert found.arrays[0].shape == (40, 50)
    if device.name == "emulator" and out.startswith("empty"):
        assert (found.arrays[1].changed, found.arrays[1].unwritten) == (None, 0)


def test_integers_atomics_and_templates(device: Device) -> None:
    found = run(
        device, "histogram", "cdiv(n,64)", "64", "random:n:high=7", "200", "zeros:256:uint32",
        expect=["bins = where(reshape(bins, 256) == 1, bins, bins)"],
    )  # fmt: skip
    assert not found.correct
    assert found.results["bins"].sum() == 200
    filled = run(device, "fill<64, float>", "2", "64", "empty:128", "1/2", expect=["x = value"])
    assert filled.correct


def test_sums_of_doubles_and_dynamic_shared_memory(device: Device) -> None:
    found = run(
        device, "total", "1", "1", "random:n", "300", "empty:1", expect=["sum = sum(x)"]
    )  # fmt: skip
    assert found.correct
    assert found.compared[0].share is not None
    assert run(
        device, "reversed", "1", "64", "arange:64", shared="4*64", expect=["y = 63 - y"]
    ).correct  # fmt: skip


def test_what_nobody_writes_is_told(emulator: Device) -> None:
    found = run(
        emulator, "saxpy", "1", "32", "n=0", "a=1", "x=empty:4", "y=empty:5",
        expect=["y = 0.0*a"],
    )  # fmt: skip
    assert not found.correct
    assert [each.unwritten for each in found.arrays] == [4, 5]
    assert found.arrays[1].cells()[3:] == ("0", "", "", "", "5 unwritten")
    with pytest.raises(UninitializedReadError, match=r"x\[0\]"):
        run(emulator, "saxpy", "1", "32", "4", "1", "empty:4", "zeros:4")


def test_faults_are_raised_and_the_arrays_stay(emulator: Device) -> None:
    with pytest.raises(MemoryAccessError, match=r"y\[4\]"):
        run(emulator, "saxpy", "1", "32", "8", "1", "zeros:8", "zeros:4")


@pytest.mark.parametrize(
    ("grid", "block", "shared", "told"),
    [
        ("0", "32", "0", "every extent must be at least 1"),
        ("1,2,3,4", "32", "0", "--grid has 4 extents"),
        ("1", "n/3", "0", "--block is 'n/3'"),
        ("1", "2048", "0", "2,048 threads; the hardware takes at most 1,024"),
        ("1,70000", "1", "0", "y is 70,000; the hardware takes at most 65,535"),
        ("1", "1", "1<<20", "1,048,576 bytes of shared memory"),
        ("1", "1", "-4", "--shared is -4; it must be at least 0 bytes"),
        ("q", "1", "0", "q stands for no number; known are n, a"),
    ],
)
def test_grids_that_can_not_be(
    device: Device, grid: str, block: str, shared: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ("n=8", "a=1", "x=random:8", "y=random:8")
    monkeypatch.setattr(np.random, "default_rng", lambda *_: pytest.fail("an array was drawn"))
    with pytest.raises((ValueError, LaunchError), match=re.escape(told)):
        prepare(Kernel(SOURCE, "saxpy"), texts, grid, block, shared, arch=device.arch)


def test_a_tolerance_is_a_number_from_0() -> None:
    ready = prepare(
        Kernel(SOURCE, "reversed"), ["zeros:4"], "1", "4", "16", arch="sm_90a"
    )  # fmt: skip
    for given in ({"rtol": -1.0}, {"atol": float("nan")}):
        with pytest.raises(ValueError, match="it must be at least 0, and finite"):
            launch(ready, device="emulator", **given)  # type: ignore[arg-type]


def test_figures_of_odd_arrays() -> None:
    before = np.array([0, -0.0, 1, np.nan, np.nan])
    after = np.array([0, 0.0, np.inf, np.nan, 2])
    found = ArrayResult.of("x", before, after, None)
    assert (found.changed, found.nan, found.infinite, found.min, found.max) == (3, 1, 1, 0, 2)
    records = np.zeros(3, [("a", "i4"), ("b", "f8")])
    other = records.copy()
    other["a"][1] = 4
    found = ArrayResult.of("x", records, other, None)
    assert (found.changed, found.min) == (1, None)
    empty = ArrayResult.of("x", np.zeros((0, 3)), np.zeros((0, 3)), None)
    assert (empty.changed, empty.mean, empty.first) == (0, None, ())
    pairs = np.array([1 + 2j, 3])
    assert ArrayResult.of("x", pairs, pairs, None).to_dict()["first"] == [[1.0, 2.0], [3.0, 0.0]]


class OnTheHost:
    """What counts as a GPU here: it takes NumPy's arrays alone, and launches on the emulator."""

    name = "gpu"

    def __init__(self, device: Device) -> None:
        self.device, self.arch, self.description = device, device.arch, "a GPU, made up"

    def empty(self, *_: Any) -> Any:
        pytest.fail("a GPU does not know what nobody wrote: the host's array is copied")

    def launch(self, compiled: Any, asked: Any) -> Any:
        assert not [x for x in asked.args if hasattr(x, "to_numpy")]
        return self.device.launch(compiled, asked)


def test_on_a_gpu_arrays_are_the_hosts(emulator: Device) -> None:
    ready = prepare(
        Kernel(SOURCE, "transpose"), ["random:m,n", "empty:n,m", "m=3", "n=5"], "1", "8,8",
        arch=emulator.arch,
    )  # fmt: skip
    gpu: Any = OnTheHost(emulator)
    found = launch(ready, device=gpu, expect=["out = in.T"])
    assert found.correct
    assert (found.arrays[1].changed, found.arrays[1].unwritten) == (None, None)
    assert found.arrays[1].cells()[3] == "?"


def test_on_a_gpu_a_kernel_with_limits_has_a_process_of_its_own(
    emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    ready = prepare(
        Kernel(SOURCE, "reversed", limits=Limits()), ["arange:4"], "1", "4", "16",
        arch=emulator.arch,
    )  # fmt: skip

    def in_a_process(device: str, arch: str, compiled: Any, asked: Any, carried: Any) -> Any:
        seen.append({"device": device, "arch": arch})
        return emulator.launch(compiled, asked), set(carried)

    monkeypatch.setattr("tilewise.launchable.in_a_process", in_a_process)
    gpu: Any = OnTheHost(emulator)
    assert launch(ready, device=gpu, expect=["y = 3 - y"]).correct
    assert seen == [{"device": "gpu", "arch": emulator.arch}]
