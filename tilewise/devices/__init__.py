"""The devices that launch kernels, ``gpu`` and ``emulator``, behind one protocol."""

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
        """Return a copy on the host."""
        ...


class Device(Protocol):
    """A device that launches kernels.

    Attributes
    ----------
    name : str
        ``"gpu"`` or ``"emulator"``.
    arch : str
        The architecture to compile for, as in ``"sm_90a"``.
    description : str
        The device in words.
    """

    name: str
    arch: str
    description: str

    def array(self, host: npt.NDArray[Any]) -> DeviceArray:
        """Return a copy of ``host`` on the device, with the same row pitch."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        """Return an uninitialised array."""
        ...

    def launch(self, compiled: Compiled, launch: Launch) -> LaunchReport:
        """Launch a kernel, wait for it, and return a report.

        NumPy arrays among the arguments are copied to the device, and back if the kernel may have
        written them; arrays that lie on this device are used in place.

        Raises
        ------
        LaunchError
            If the device's limits forbid the launch, or it failed.
        CheckError
            If ``launch.checks`` is ``"raise"`` and a check found a fault; then none of the caller's
            arrays has changed.
        """
        ...

    def module(self, compiled: Compiled) -> Module:
        """Return the variables of a kernel's module, as the source initializes them.

        A launch that is given the module (:attr:`tilewise.Launch.module`) uses these variables, and
        leaves in them what it writes. Without a module, each launch begins with new ones.
        """
        ...

    def blocks_per_multiprocessor(self, compiled: Compiled, threads: int, shared: int = 0) -> int:
        """Return the occupancy: the blocks of ``threads`` that a multiprocessor holds at once."""
        ...


@cache
def get_device(name: str = "auto") -> Device:
    """Return the device called ``name``; ``"auto"`` is the GPU if there is one.

    Parameters
    ----------
    name : str
        ``"auto"``, ``"gpu"`` or ``"emulator"``. :func:`tilewise.emulator` returns an emulator of
        another architecture.

    Returns
    -------
    Device
        The device, the same object for the same name.

    Raises
    ------
    ValueError
        If the name is another one.
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
    """Return the device itself, or the device with that name.

    Raises
    ------
    ValueError, DeviceUnavailableError
        As in :func:`get_device`.
    TypeError
        If it is neither a name nor a device.
    """
    if isinstance(device, str):
        return get_device(device)
    check_device(device)
    return device


def check_device(device: str | Device) -> None:
    """Raise ValueError for an unknown name, and TypeError for what is neither name nor device.

    A device with a known name may still not be available.
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
