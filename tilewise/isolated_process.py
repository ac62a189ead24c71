"""The process that launches for :mod:`tilewise.isolated`; it answers by standard output."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import cache, confine, processes
from tilewise.counted import Confirmation
from tilewise.devices import Device, get_device
from tilewise.devices.emulator import Emulator
from tilewise.errors import LaunchError, TilewiseError
from tilewise.isolated import SharedArray, Task, exceeded
from tilewise.launch import LaunchReport
from tilewise.pointer import Pointer
from tilewise.tensor_map import MappedArray

UNCONFIRMED = Confirmation(lambda: "the counts were not held against the machine code")


def answer(task: Task) -> LaunchReport | Exception:
    """Launch a task in this process, and return the report or the error that was raised."""
    limits = task.launch.limits
    assert limits is not None
    name = task.file
    with os.fdopen(name, "r+b") if isinstance(name, int) else Path(name).open("r+b") as file:
        shared = np.memmap(file, np.uint8, "r+")
    args = tuple(_here(x, shared) for x in task.launch.args)
    try:
        place: Device
        if task.device == "gpu":
            place = get_device("gpu")
        else:
            place = Emulator(task.arch)
            # There is no limit with CUDA, which reserves more addresses than any limit allows.
            if limits.memory is not None:
                confine.limit_memory(limits.memory)
        if task.variables:
            report = _with_variables(place, task, args, shared)
        else:
            report = place.launch(task.compiled, replace(task.launch, args=args))
        return report if task.confirms else replace(report, confirmation=UNCONFIRMED)
    except MemoryError as error:
        if limits.memory is None:
            return LaunchError(f"{task.compiled.file}: too large for this machine: {error}")
        return exceeded("memory", limits.memory, task)
    except (TilewiseError, ValueError, TypeError) as error:
        return error
    except Exception as error:
        return LaunchError(f"{task.compiled.file}: {type(error).__name__}: {error}")


def _here(argument: Any, shared: npt.NDArray[np.uint8]) -> Any:
    """Return an argument with its array, if it has one, in this process."""
    if isinstance(argument, MappedArray | Pointer):
        return replace(argument, array=argument.array.of(shared))
    return argument.of(shared) if isinstance(argument, SharedArray) else argument


def _with_variables(
    place: Device, task: Task, args: tuple[Any, ...], shared: npt.NDArray[np.uint8]
) -> LaunchReport:
    """Launch with the variables that are given, and mark those that have changed."""
    module = place.module(task.compiled)
    before = {}
    for symbol, (at, is_given) in task.variables.items():
        if is_given:
            module.write(symbol, at.of(shared)[:-1].tobytes())
        before[symbol] = module.read(symbol)
    report = place.launch(task.compiled, replace(task.launch, args=args, module=module))
    for symbol, (at, _) in task.variables.items():
        held = module.read(symbol)
        at.of(shared)[:-1] = np.frombuffer(held, np.uint8)
        at.of(shared)[-1] = held != before[symbol]
    return report


def _prepared() -> Callable[[bytes], bytes]:
    # Modules that launches import on demand are imported here, once for all forked processes.
    cache.load(bytes(32))
    return lambda asked: pickle.dumps(answer(pickle.loads(asked)))


def main() -> None:
    """Answer the requests on standard input until it ends."""
    processes.serve(_prepared)
