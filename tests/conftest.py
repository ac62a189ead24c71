"""One suite for both devices: ``pytest --device emulator`` (the default) or ``--device gpu``.

A plain run on the emulator takes minutes: what is marked ``thorough`` is left out, and Hypothesis
draws few examples; of what is marked ``sampled``, and of products of parameters, some of the cases
run (``quick.py``). ``--thorough`` runs everything, and so does a run on a GPU.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import partialmethod, wraps
from types import FunctionType
from typing import Any

import pytest
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

from tilewise import tracebacks
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
    """Whether everything runs: where it is asked for, and on a GPU, which is fast enough."""
    return bool(config.getoption("--thorough")) or config.getoption("--device") == "gpu"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thorough: takes long; left out unless --thorough is given")
    config.addinivalue_line(
        "markers", "sampled(every): of a test's cases, one in so many runs without --thorough"
    )
    settings.load_profile("thorough" if is_thorough(config) else "quick")
    os.environ[tracebacks.VARIABLE] = "1"  # who reads a failure wants all of it
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
    # Asked for and not there is a failure of the run, before any test: a skip would look green.
    if config.getoption("--device") == "gpu":
        try:
            get_device("gpu")
        except DeviceUnavailableError as error:
            raise pytest.UsageError(f"--device gpu: {error}") from None


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
    gc.set_threshold(500_000, 10, 10)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    """The device that this run is for."""
    return get_device(request.config.getoption("--device"))


@pytest.fixture
def emulator(device: Device) -> Device:
    """The emulator, for what only it does; such a test is skipped on a GPU."""
    if device.name != "emulator":
        pytest.skip("only the emulator counts and checks")
    return device


def to_ptx_alone(
    kernel: Kernel, place: Device, counts: bool, compiled_on: Any = Kernel.compiled_on
) -> Compiled:
    """For :meth:`Kernel.compiled_on`: take what is in the cache, or compile to PTX alone."""
    return kernel.find(place.arch) or compiled_on(kernel, place, counts=False)


@pytest.fixture(scope="module")
def no_machine_code(pytestconfig: pytest.Config) -> Iterator[None]:
    """For tests of results and findings: machine code, which takes most of their time, is not read.

    It says how accesses are counted, and nothing else. So that of launches on the emulator is not
    even made; with ``--thorough`` it is.
    """
    unread = Disassembly(None, "these tests do not ask how accesses are counted")
    with disassembled_by(lambda compiled: unread), pytest.MonkeyPatch.context() as patch:
        if not is_thorough(pytestconfig):
            patch.setattr(Kernel, "compiled_on", to_ptx_alone)
        yield


@pytest.fixture(scope="session", autouse=True)
def assembled(pytestconfig: pytest.Config) -> Iterator[None]:
    """With ``--thorough``, ptxas gets every kernel that is launched, counted or not."""
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
    """For tests of results and findings: launches count only where they ask to.

    Of their kernels no machine code is made, which takes half of the time to compile one; with
    ``--thorough`` it is.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "launch", partialmethod(Kernel.launch, counts=False))
        yield


@pytest.fixture
def hopper(device: Device) -> Device:
    """A device that has bulk copies; where it has none, such a test is skipped."""
    if not device.arch.startswith("sm_9"):
        pytest.skip("needs bulk copies: compute capability 9.0")
    return device


@pytest.fixture(scope="session")
def gpu(device: Device) -> Gpu:
    """The GPU, for what only it does; such a test is skipped on the emulator."""
    if not isinstance(device, Gpu):
        pytest.skip("needs a GPU: pytest --device gpu")
    return device


@pytest.fixture(autouse=True)
def turn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lets the tests of several processes use the GPU together, and those that measure alone.

    A test holds a lock that others share, or if it asks for ``alone``, one that nobody shares.
    Whoever waits for a lock holds the queue, so that those who share can't overtake for ever.
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
    """For tests that measure: no other process of the run uses the GPU meanwhile (``turn``)."""


@pytest.fixture
def launch(device: Device) -> Launcher:
    """Launches a kernel of ``tests/kernels`` on the device that this run is for.

    It counts where it is asked to: most tests look at results and findings alone.
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
