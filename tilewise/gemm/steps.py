"""The plan of a product, and its execution on a device."""

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
from tilewise.shown import Part, Shown, Table, plural

PREPARED, KERNELS = 4096, 1024  # the number of plans, and of kernels, that are kept ready


class Step(NamedTuple):
    """One launch of a plan.

    Attributes
    ----------
    kernel : Kernel
    launch : Launch
        The launch, whose places are in the arrays A, B, C, D and WORKSPACE of
        :mod:`tilewise.gemm.product`.
    """

    kernel: Kernel
    launch: Launch


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Shown):
    """The launches that compute a product, one after another, without addresses.

    Attributes
    ----------
    steps : tuple of Step
        The launches in order; none if there is nothing to compute.
    workspace : int
        The bytes of device memory that the steps share, 256-byte aligned; 0 for none.
    chosen : str
        The kernel and its tiles, in words.
    why : str
        The reason for this choice, in words.
    """

    steps: tuple[Step, ...]
    workspace: int
    chosen: str
    why: str

    def because(self, why: str) -> Plan:
        """Return the same plan with another reason."""
        return Plan(self.steps, self.workspace, self.chosen, why)

    def _summary(self) -> str:
        return f"{self.chosen}, launches: {len(self.steps)}"

    def _parts(self) -> list[Part]:
        rows = [(step.kernel.name, step.launch._summary()) for step in self.steps]
        return [
            f"by {self.chosen}", f"why: {self.why}", Table(rows, left=2),
            f"workspace: {plural(self.workspace, 'byte')}",
        ]  # fmt: skip


def execute(plan: Plan, device: Device, stream: int, addresses: Sequence[int]) -> None:
    """Launch a plan's steps.

    On a GPU the launches are enqueued, and the call does not wait for them. On the emulator they
    have ended when the call returns.

    Parameters
    ----------
    plan : Plan
    device : Device
    stream : int
        The driver's handle of a stream in the GPU's primary context; 0 is the default stream.
    addresses : sequence of int
        The addresses of A, B, C, D and the workspace on that device; 0 for an array that does not
        exist.

    Raises
    ------
    CompileError
        If a kernel does not compile for this device.
    LaunchError
        If a kernel can't be launched.
    DeviceUnavailableError
        If this process was forked from one that used the GPU already.
    """
    if isinstance(device, Gpu):
        for prepared in prepare(plan, device):
            device.enqueue(prepared, stream, addresses)
    else:
        from tilewise.devices.emulator.copies.tensor_maps import encode

        for step in plan.steps:
            launch = step.launch.filled(addresses, encode)
            # The report is not read. ptxas keeps the registers within these kernels' launch bounds.
            compiled = step.kernel.compiled_on(device, counts=False)
            device.launch(compiled, replace(launch, counts=False))


class NotKeptError(Exception):
    """The error that a kernel is not in the cache and should not be compiled."""


@lru_cache(maxsize=PREPARED)
def prepare(plan: Plan, gpu: Gpu, compiles: bool = True) -> tuple[Prepared, ...]:
    """Return a plan's launches, compiled and checked once, for :meth:`Gpu.enqueue`.

    Parameters
    ----------
    plan : Plan
    gpu : Gpu
    compiles : bool, optional
        Whether to compile kernels that are not in the cache.

    Raises
    ------
    CompileError, LaunchError, DeviceUnavailableError
        As in :func:`execute`.
    NotKeptError
        If a kernel is not in the cache, and ``compiles`` is False.
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
