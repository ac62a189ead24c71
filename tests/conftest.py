"""Run one suite on either device: ``pytest --device emulator`` (the default) or ``--device gpu``.

A plain run on the emulator takes minutes. It leaves out tests that are marked ``thorough``, draws
few examples by Hypothesis, and runs some of the cases of tests that are marked ``sampled`` or have
a product of parameters (``quick.py``). ``--thorough`` runs everything, and so does a run on a GPU.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from functools import partialmethod, wraps
from types import FunctionType
from typing import Any

import pytest
from commands import k_cu as k_cu
from commands import run_watch as run_watch
from commands import source as source
from commands import tilewise as tilewise
from hypothesis import HealthCheck, settings
from player import browser as browser
from player import shared_tab as shared_tab
from player import show as show
from quick import chosen
from reference import KERNELS, QUICK, THOROUGH, Launcher, disassembled_by
from tensors import torch as torch
from tensors import tw as tw

from tilewise import compiler, tracebacks
from tilewise.compiler import Compiled
from tilewise.compiler.machine_code import Disassembly
from tilewise.devices import Device, get_device
from tilewise.devices.gpu import Gpu
from tilewise.errors import DeviceUnavailableError
from tilewise.kernel import Kernel, PtxKernel
from tilewise.launch import LaunchReport

# No deadline: the first example of a kernel compiles it.
CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
for name, examples in (("quick", QUICK), ("thorough", THOROUGH)):
    settings.register_profile(
        name, deadline=None, max_examples=examples, suppress_health_check=CHECKS
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=("emulator", "gpu"),
        default="emulator",
        help="where the kernels are launched",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="also run the tests marked thorough, and Hypothesis with all its examples",
    )


def is_thorough(config: pytest.Config) -> bool:
    """Return whether everything runs: with ``--thorough``, and on a GPU, which is fast enough."""
    return bool(config.getoption("--thorough")) or config.getoption("--device") == "gpu"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thorough: takes long; left out unless --thorough is given")
    config.addinivalue_line(
        "markers", "sampled(every): of a test's cases, one in so many runs without --thorough"
    )
    settings.load_profile("thorough" if is_thorough(config) else "quick")
    os.environ[tracebacks.VARIABLE] = "1"  # a failure shows all frames of its traceback
    # One thread each for NumPy's linear algebra and PyTorch's: workers and the processes of tests
    # share the cores, and threads that only wait for each other took a quarter of the run. The
    # products of a run on a GPU are large.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        if config.getoption("--device") == "emulator":
            os.environ.setdefault(variable, "1")
    # One cache of compiled kernels for all processes of a run, and for the runs after it.
    # Without the plugin "cacheprovider" there is no such attribute.
    cache = getattr(config, "cache", None)
    if cache is not None:
        os.environ.setdefault("TILEWISE_CACHE_DIR", str(cache.mkdir("kernels")))
    # A missing GPU is an error before any test runs: skipped tests would look like a success.
    if config.getoption("--device") == "gpu":
        try:
            get_device("gpu")
        except DeviceUnavailableError as error:
            raise pytest.UsageError(f"--device gpu: {error}") from None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which took a third of the time and found little."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_thorough(config):
        return
    taken = chosen(items)
    kept = {*taken}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = taken


def pytest_collection_finish() -> None:
    """Let the garbage collector look seldom, and never at what stays: modules and tests.

    The emulator makes some 100,000 objects for a launch and frees them behind it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 10, 10)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    """Return the device of ``--device``, on which this run launches kernels."""
    return get_device(request.config.getoption("--device"))


@pytest.fixture
def emulator(device: Device) -> Device:
    """Return the emulator, for tests of what only it does; on a GPU they are skipped."""
    if device.name != "emulator":
        pytest.skip("only the emulator counts and checks")
    return device


def to_ptx_alone(
    kernel: Kernel, place: Device, counts: bool, compiled_on: Any = Kernel.compiled_on
) -> Compiled:
    """Take a kernel from the cache, or compile it to PTX alone; replaces Kernel.compiled_on."""
    return kernel.find(place.arch) or compiled_on(kernel, place, counts=False)


@pytest.fixture(scope="module")
def no_machine_code(pytestconfig: pytest.Config) -> Iterator[None]:
    """Leave out machine code, in tests of results and findings alone; it takes most of their time.

    The emulator reads machine code only to count accesses. So it is not even made for its launches,
    except with ``--thorough``.
    """
    unread = Disassembly(None, "these tests do not ask how accesses are counted")
    with disassembled_by(lambda compiled: unread), pytest.MonkeyPatch.context() as patch:
        if not is_thorough(pytestconfig):
            patch.setattr(Kernel, "compiled_on", to_ptx_alone)
        yield


@pytest.fixture(scope="module")
def ptx_alone(pytestconfig: pytest.Config) -> Iterator[None]:
    """Have NVRTC make PTX alone, in tests of what it reads, refuses and declares.

    With ``--thorough`` ptxas makes machine code of it too.
    """
    whole = compiler.compile_request
    with pytest.MonkeyPatch.context() as patch:
        if not is_thorough(pytestconfig):
            patch.setattr(
                compiler,
                "compile_request",
                lambda request: whole(request._replace(machine_code=False)),
            )
        yield


@pytest.fixture(scope="session", autouse=True)
def assembled(pytestconfig: pytest.Config) -> Iterator[None]:
    """Have ptxas compile every launched kernel, counted or not, with ``--thorough``."""
    # A function of tilewise's own: tracebacks leave out its frames, and the API's page shows it.
    whole = wraps(Kernel.compiled_on)(
        FunctionType(PtxKernel.compiled_on.__code__, PtxKernel.compiled_on.__globals__)
    )
    with pytest.MonkeyPatch.context() as patch:
        if is_thorough(pytestconfig):
            patch.setattr(Kernel, "compiled_on", whole)
        yield


@pytest.fixture(scope="module")
def uncounted() -> Iterator[None]:
    """Count only launches with ``counts=True``, in tests of results and findings alone.

    No machine code of the other kernels is made, which takes half of the time to compile one; with
    ``--thorough`` it is.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "launch", partialmethod(Kernel.launch, counts=False))
        yield


@pytest.fixture
def hopper(device: Device) -> Device:
    """Return the device if it has bulk copies (compute capability 9.0); otherwise skip the test."""
    if not device.arch.startswith("sm_9"):
        pytest.skip("needs bulk copies: compute capability 9.0")
    return device


@pytest.fixture(scope="session")
def gpu(device: Device) -> Gpu:
    """Return the GPU, for tests of what only it does; on the emulator they are skipped."""
    if not isinstance(device, Gpu):
        pytest.skip("needs a GPU: pytest --device gpu")
    return device


@pytest.fixture(autouse=True)
def turn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the tests of several processes share the GPU, and a test that measures use it alone.

    A test holds a shared lock, or if it requests the fixture ``alone``, an exclusive one. A test
    that waits for its lock holds the queue, so that shared locks can't starve an exclusive one.
    """
    if request.config.getoption("--device") != "gpu" or "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    folder = request.getfixturevalue("tmp_path_factory").getbasetemp().parent
    alone = "alone" in request.fixturenames
    fcntl = pytest.importorskip("fcntl", reason="several processes can't share the GPU here")
    with (folder / "gpu").open("w") as lock:
        with (folder / "queue").open("w") as queue:
            fcntl.flock(queue, fcntl.LOCK_EX)
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@pytest.fixture
def alone() -> None:
    """Keep other processes of the run off the GPU, for tests that measure: see ``turn``."""


@pytest.fixture
def launch(device: Device) -> Launcher:
    """Return a function that launches a kernel of ``tests/kernels`` on the device under test.

    It counts only with ``counts=True``: most tests look at results and findings alone.
    """

    def run(
        file: str,
        name: str,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        *args: Any,
        shared: int = 0,
        checks: str = "raise",
        defines: dict[str, Any] | None = None,
        counts: bool = False,
    ) -> LaunchReport:
        kernel = Kernel(KERNELS / f"{file}.cu", name, defines)
        return kernel.launch(
            grid, block, args, shared=shared, device=device, checks=checks, counts=counts
        )

    return run
