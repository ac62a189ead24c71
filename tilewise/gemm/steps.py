"""What a plan is made of, and its execution on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from tilewise.compiler import Compiled
from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.devices.prepared import Prepared
from tilewise.kernel import Kernel
from tilewise.launch import Launch
from tilewise.shown import Part, Shown, Table

PREPARED, KERNELS = 4096, 1024  # plans, and kernels, that are kept ready


class Step(NamedTuple):
    """One launch of a plan.

    Attributes
    ----------
    kernel : Kernel
    launch : Launch
        Its places are in the arrays A, B, C, D and WORKSPACE of :mod:`tilewise.gemm.product`.
    """

    kernel: Kernel
    launch: Launch


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Shown):
    """How a product is computed: launches one after another. It holds no addresses.

    Attributes
    ----------
    steps : tuple of Step
        In order; none where there is nothing to compute.
    workspace : int
        Bytes of the device's memory that the steps share, 256-byte aligned; 0 for none.
    chosen : str
        The kernel and its tiles, for people.
    why : str
        Why this one, for people.
    """

    steps: tuple[Step, ...]
    workspace: int
    chosen: str
    why: str

    def because(self, why: str) -> Plan:
        """Return the same plan for that reason."""
        return Plan(self.steps, self.workspace, self.chosen, why)

    def _summary(self) -> str:
        return f"{self.chosen}, launches: {len(self.steps)}"

    def _parts(self) -> list[Part]:
        rows = [(step.kernel.name, step.launch._summary()) for step in self.steps]
        return [
            f"by {self.chosen}", f"why: {self.why}", Table(rows, left=2),
            f"workspace: {self.workspace:,} bytes",
        ]  # fmt: skip


def execute(plan: Plan, device: Device, stream: int, addresses: Sequence[int]) -> None:
    """Launch a plan's steps.

    On a GPU they are enqueued, and not waited for. The emulator has done them on return.

    Parameters
    ----------
    plan : Plan
    device : Device
    stream : int
        A handle of the driver's, of the GPU's primary context; 0 is the default stream.
    addresses : sequence of int
        Of A, B, C, D and the workspace, on that device; 0 where there is none.

    Raises
    ------
    CompileError
        If a kernel does not compile for this device.
    LaunchError
        If one can't be launched.
    DeviceUnavailableError
        In a process forked from one that used the GPU already.
    """
    if isinstance(device, Gpu):
        for prepared in prepare(plan, device):
            device.enqueue(prepared, stream, addresses)
    else:
        from tilewise.devices.emulator.copies.tensor_maps import encode

        for step in plan.steps:
            launch = step.launch.filled(addresses, encode)
            # Nobody reads a report. ptxas keeps the registers within these kernels' launch bounds.
            compiled = step.kernel.compiled_on(device, counts=False)
            device.launch(compiled, replace(launch, counts=False))


class NotKeptError(Exception):
    """A kernel is not in the cache, and was not to be compiled."""


@lru_cache(maxsize=PREPARED)
def prepare(plan: Plan, gpu: Gpu, compiles: bool = True) -> tuple[Prepared, ...]:
    """The plan's launches, compiled and checked once, for :meth:`Gpu.enqueue`.

    Parameters
    ----------
    plan : Plan
    gpu : Gpu
    compiles : bool, optional
        Whether kernels that are not in the cache are compiled.

    Raises
    ------
    CompileError, LaunchError, DeviceUnavailableError
        As :func:`execute`.
    NotKeptError
        If one would have to be compiled, and is not to be.
    """
    return tuple(
        gpu.prepare(_compiled(step.kernel, gpu.arch, compiles), step.launch) for step in plan.steps
    )


@lru_cache(maxsize=KERNELS)
def _compiled(kernel: Kernel, arch: str, compiles: bool) -> Compiled:
    if compiles:
        return kernel.compile(arch, lines=False)
    found = kernel.find(arch, lines=False)
    if found is None:
        raise NotKeptError(f"{kernel!r} is not in the cache")
    return found
