"""A launch in a process of its own, which ends with it, whatever the kernel does."""

from __future__ import annotations

import pickle
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler import Compiled, confine
from tilewise.counted import Counters, Footprint, Resources
from tilewise.devices import arguments
from tilewise.devices.arguments import ArrayArgument, ScalarArgument
from tilewise.errors import LaunchError, LimitError
from tilewise.launch import Alike, Finding, Launch, LaunchReport
from tilewise.limits import Limits

GRACE = 10.0
"""Seconds that the process may take beyond its limit, to read the task and to answer."""
_PAGE = 4096
_SHARED_FOLDER = Path("/dev/shm")
_ANSWERS = {
    (each.__module__, each.__name__)
    for each in (
        LaunchReport, Launch, Resources, Counters, Finding, Alike, Footprint, Limits, ValueError,
        TypeError,
    )
}  # fmt: skip
"""What an answer may be made of: the process is not trusted to send more."""


@dataclass(frozen=True)
class SharedArray:
    """An array in the memory that the processes share.

    Attributes
    ----------
    offset : int
        Of its first element, bytes.
    shape, strides : tuple of int
        Strides in bytes.
    dtype : dtype
    is_writeable : bool
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    is_writeable: bool

    def of(self, shared: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """The array itself, in that memory."""
        found: npt.NDArray[Any] = np.ndarray(
            self.shape, self.dtype, shared.data, self.offset, self.strides
        )
        found.flags.writeable = self.is_writeable
        return found


@dataclass(frozen=True)
class Task:
    """What the process is asked for.

    Attributes
    ----------
    device, arch : str
    compiled : Compiled
    launch : Launch
        Its arrays are each a :class:`SharedArray`; it has limits.
    file : str
        The memory that the processes share.
    """

    device: str
    arch: str
    compiled: Compiled
    launch: Launch
    file: str


def launch(device: str, arch: str, compiled: Compiled, launch: Launch) -> LaunchReport:
    """Launch a kernel in a process of its own, within its limits.

    Parameters
    ----------
    device : str
        ``"gpu"`` or ``"emulator"``.
    arch : str
        Of the emulator.
    compiled : Compiled
    launch : Launch
        Its arrays are the host's. They lie in memory that the processes share, and are copied back
        where the launch succeeds. Without limits, :class:`tilewise.Limits`' own hold.

    Raises
    ------
    LimitError
        If it takes more than its limits allow.
    LaunchError
        If the process ends before its time.
    TypeError
        If an array is not the host's.
    LaunchError, CheckError, ValueError
        As :meth:`tilewise.devices.Device.launch`.
    """
    limits = launch.limits or Limits()
    bound = arguments.bind(compiled.name, compiled.parameters, launch.args)
    with tempfile.TemporaryDirectory(
        prefix="tilewise-", dir=_SHARED_FOLDER if _SHARED_FOLDER.is_dir() else None
    ) as folder:
        args, arrays, size = _places(bound, launch.args)
        file = Path(folder) / "arrays"
        shared = np.memmap(file, np.uint8, "w+", shape=(max(size, 1),))
        for host, place in arrays:
            replace(place, is_writeable=True).of(shared)[...] = host
        task = Task(device, arch, compiled, replace(launch, args=args, limits=limits), str(file))
        report = _asked(task, limits)
        for host, place in arrays:
            if place.is_writeable:
                host[...] = place.of(shared)
        del shared
    return report


def _places(
    bound: Sequence[ScalarArgument | ArrayArgument], given: Sequence[Any]
) -> tuple[tuple[Any, ...], list[tuple[npt.NDArray[Any], SharedArray]], int]:
    """The arguments with arrays by their places, the arrays, and how many bytes they take.

    Arrays that overlap in the host's memory overlap in the same way.
    """
    hosts: dict[int, npt.NDArray[Any]] = {}
    for number, argument in enumerate(bound):
        if isinstance(argument, ArrayArgument):
            if not isinstance(argument.value, np.ndarray):
                raise TypeError(
                    f"argument {number} lies on a device; an isolated launch takes NumPy arrays"
                )
            hosts[number] = argument.value
    extents = {number: arguments.extent(host) for number, host in hosts.items()}
    moved: dict[int, int] = {}
    size, last_end, shift = 0, -1, 0
    for number, (begin, end) in sorted(extents.items(), key=lambda item: item[1]):
        if begin >= last_end:  # it begins a piece of its own, as aligned as it is
            size = -(-size // _PAGE) * _PAGE + begin % _PAGE
            shift = size - begin
        last_end = max(last_end, end)
        size = max(size, last_end + shift)
        moved[number] = shift
    args: list[Any] = []
    arrays = []
    for number, argument in enumerate(bound):
        if number in hosts:
            host = hosts[number]
            offset = host.__array_interface__["data"][0] + moved[number]
            place = SharedArray(offset, host.shape, host.strides, host.dtype, host.flags.writeable)
            args.append(place)
            arrays.append((host, place))
        elif isinstance(argument, ScalarArgument) and argument.parameter.type == "b8":
            args.append(argument.data)
        else:
            args.append(given[number])
    return tuple(args), arrays, size


def _asked(task: Task, limits: Limits) -> LaunchReport:
    """What a process answers."""
    with confine.python("tilewise.isolated_process") as process:
        try:
            is_started = confine.wait_for_start(process)
            seconds = None if limits.seconds is None else limits.seconds + GRACE
            said, _ = process.communicate(pickle.dumps(task), seconds)
        except TimeoutError as error:
            raise LaunchError(f"{task.compiled.name}: the launch did not start: {error}") from None
        except subprocess.TimeoutExpired:
            assert limits.seconds is not None
            raise exceeded("seconds", limits.seconds, task) from None
        finally:
            process.kill()
    try:
        answer = Reader(said).load()
    except (pickle.UnpicklingError, EOFError):
        is_full = is_started and confine.was_out_of_memory(process)
        if limits.memory is not None and task.device != "gpu" and is_full:
            raise exceeded("memory", limits.memory, task) from None
        raise LaunchError(
            f"{task.compiled.name}: the process that launched it ended with "
            f"{confine.how_it_ended(process)}, and said nothing"
        ) from None
    if isinstance(answer, LaunchReport):
        return answer
    raise answer


def exceeded(limit: str, value: float, task: Task) -> LimitError:
    """The error that names a limit, where no line is known."""
    return LimitError(limit, value, "the launch was stopped", task.compiled.file)


class Reader(pickle.Unpickler):
    """Reads an answer, of which nothing can run."""

    def __init__(self, data: bytes) -> None:
        super().__init__(BytesIO(data))

    def find_class(self, module: str, name: str) -> Any:
        """The class of an answer's part.

        Raises
        ------
        pickle.UnpicklingError
            If answers have no such parts.
        """
        is_error = module == "tilewise.errors" and name.endswith("Error")
        if is_error or (module, name) in _ANSWERS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"an answer with {module}.{name} in it")
