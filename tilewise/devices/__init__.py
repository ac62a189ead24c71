"""Places that launch kernels: ``gpu`` and ``emulator``, behind one protocol."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewise.compiler import Compiled
from tilewise.devices import emulated, gpu
from tilewise.errors import DeviceUnavailableError
from tilewise.launch import Launch, LaunchReport, Module

NAMES = ("auto", "gpu", "emulator")


class DeviceArray(Protocol):
    """An array that lies on a device."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def pointer(self) -> int:
        """The address of the first element, for kernels on that device."""
        ...

    def to_numpy(self) -> npt.NDArray[Any]:
        """A copy on the host."""
        ...


class Device(Protocol):
    """A place that launches kernels.

    Attributes
    ----------
    name : str
        ``"gpu"`` or ``"emulator"``.
    arch : str
        What to compile for, as ``"sm_90a"``.
    description : str
        For people.
    """

    name: str
    arch: str
    description: str

    def array(self, host: npt.NDArray[Any]) -> DeviceArray:
        """A copy of ``host`` on the device, its row pitch kept."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """An array that nobody wrote yet."""
        ...

    def launch(self, compiled: Compiled, launch: Launch) -> LaunchReport:
        """Launch, wait, report.

        NumPy arrays among the arguments are copied in and, where the kernel may have written
        them, out; arrays that lie on this device are used where they lie.

        Raises
        ------
        LaunchError
            If the device's limits forbid it, or it failed.
        CheckError
            If ``launch.checks`` is ``"raise"`` and a check found a fault; no array of the
            caller's has changed then.
        """
        ...

    def module(self, compiled: Compiled) -> Module:
        """The variables of a kernel's module, as the source initializes them.

        A launch that is given it (:attr:`tilewise.Launch.module`) uses them, and leaves there what
        it writes. Without, each launch begins with new ones.
        """
        ...

    def blocks_per_multiprocessor(self, compiled: Compiled, threads: int, shared: int = 0) -> int:
        """Occupancy: resident blocks of ``threads`` a multiprocessor."""
        ...


@cache
def get_device(name: str = "auto") -> Device:
    """Return the device called ``name``; ``"auto"`` is the GPU where there is one.

    Parameters
    ----------
    name : str
        ``"auto"``, ``"gpu"`` or ``"emulator"``. :func:`tilewise.emulator` makes an emulator of
        another architecture.

    Returns
    -------
    Device
        The same one for the same name.

    Raises
    ------
    ValueError
        If the name is none of these.
    DeviceUnavailableError
        If a GPU was asked for and there is none.

    Examples
    --------
    >>> import tilewise
    >>> device = tilewise.get_device("emulator")
    >>> device.name, device.arch
    ('emulator', 'sm_90a')
    """
    check_device(name)
    if name != "emulator":
        try:
            return gpu.Gpu()
        except DeviceUnavailableError:
            if name == "gpu":
                raise
    return emulated.emulator()


def device_of(device: str | Device) -> Device:
    """Return the device that is given, or the one of that name.

    Raises
    ------
    ValueError, DeviceUnavailableError
        As :func:`get_device`.
    TypeError
        If it is neither a name nor a device.
    """
    if isinstance(device, str):
        return get_device(device)
    check_device(device)
    return device


def check_device(device: str | Device) -> None:
    """Raise ValueError for a name of no device, and TypeError for what is neither one nor a name.

    A device that has a name may still not be there.
    """
    if isinstance(device, str):
        if device not in NAMES:
            there = f"no device called {device!r}; there are {', '.join(NAMES)}"
            if device.startswith(("sm_", "compute_")):
                there += f". For an emulator of {device}, pass tilewise.emulator({device!r})"
            raise ValueError(there)
    elif not callable(getattr(device, "launch", None)):
        names = ", ".join(NAMES)
        raise TypeError(f"device is {device!r}; it takes a name, one of {names}, or a device")
