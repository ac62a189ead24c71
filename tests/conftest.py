"""One suite for both devices: ``pytest --device emulator`` (the default) or ``--device gpu``."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from player import browser as browser
from player import show as show
from reference import KERNELS, Launcher

from tilewise.devices import Device, get_device
from tilewise.errors import DeviceUnavailableError
from tilewise.kernel import Kernel
from tilewise.launch import LaunchReport

# No deadline: the first example of a kernel compiles it.
settings.register_profile(
    "tilewise",
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("tilewise")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=("emulator", "gpu"),
        default="emulator",
        help="where the kernels are launched",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Asked for and not there is a failure of the run, before any test: a skip would look green.
    if config.getoption("--device") == "gpu":
        try:
            get_device("gpu")
        except DeviceUnavailableError as error:
            raise pytest.UsageError(f"--device gpu: {error}") from None


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


@pytest.fixture
def alone() -> None:
    """For tests that measure: skipped where other processes of the run use the GPU too."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("measures a GPU that the other workers use: run it without -n")


@pytest.fixture
def launch(device: Device) -> Launcher:
    """Launches a kernel of ``tests/kernels`` on the device that this run is for."""

    def run(
        file: str,
        name: str,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        *args: Any,
        shared: int = 0,
        checks: str = "raise",
        defines: dict[str, Any] | None = None,
    ) -> LaunchReport:
        kernel = Kernel(KERNELS / f"{file}.cu", name, defines)
        return kernel.launch(grid, block, args, shared=shared, device=device, checks=checks)

    return run
