"""Launch a compiled Triton or Numba kernel with arrays of the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewise.compiler import Compiled
from tilewise.devices import Device
from tilewise.launch import Launch, LaunchReport
from tilewise.python_kernels.hosts import Given, is_array, place


def launch_named(
    device: Device, compiled: Compiled, launch: Launch, names: Sequence[str]
) -> LaunchReport:
    """Place arrays on the device, launch, wait, copy back what the kernel wrote, and report.

    Parameters
    ----------
    device : Device
    compiled : Compiled
        The result of the kernel's own compiler.
    launch : Launch
        The launch, with an argument for each parameter of the machine code; arrays are those that
        :func:`tilewise.python_kernels.hosts.place` takes.
    names : sequence of str
        The name of each parameter in findings.

    Raises
    ------
    LaunchError, CheckError, TypeError, ValueError
        As in :meth:`tilewise.devices.Device.launch` and
        :func:`tilewise.python_kernels.hosts.place`.
    """
    args, labels = list(launch.args), list(names)
    at = [index for index, arg in enumerate(args) if is_array(arg)]
    placed = place(device, [Given(labels[index], args[index]) for index in at])
    for index, argument, name in zip(at, placed.arguments, placed.names, strict=True):
        args[index], labels[index] = argument, name
    parameters = tuple(
        replace(parameter, label=label)
        for parameter, label in zip(compiled.parameters, labels, strict=True)
    )
    report = device.launch(
        replace(compiled, parameters=parameters, in_python=True), replace(launch, args=tuple(args))
    )
    placed.copy_back()
    return report
