"""Launch a kernel in a process of its own, which ends with it, whatever the kernel does."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tilewise import errors
from tilewise.compiler import Compiled, processes
from tilewise.compiler.clock import Clock
from tilewise.counted import Confirmation, Counters, Footprint, Resources
from tilewise.devices import arguments
from tilewise.devices.arguments import ArrayArgument, ScalarArgument
from tilewise.devices.extents import extent
from tilewise.errors import LaunchError, LimitError, TilewiseError
from tilewise.launch import Alike, Finding, Launch, LaunchReport
from tilewise.limits import Limits
from tilewise.pointer import Pointer
from tilewise.tensor_map import MappedArray

GRACE = 10.0
"""Seconds that a process may take beyond its limit where nobody says otherwise."""
_PAGE = 4096
_SHARED_FOLDER = Path("/dev/shm")
_ERRORS = (
    *(x for x in vars(errors).values() if isinstance(x, type) and issubclass(x, TilewiseError)),
    ValueError,
    TypeError,
)
_PARTS = (
    LaunchReport, Launch, Resources, Counters, Finding, Alike, Footprint, Confirmation, Limits,
)  # fmt: skip
_CLASSES = {(each.__module__, each.__name__): each for each in (*_PARTS, *_ERRORS)}
"""What an answer may be made of: the process is not trusted to send more."""


@dataclass(frozen=True)
class SharedArray:
    """Says where an array lies in the memory that the processes share.

    Attributes
    ----------
    offset : int
        Bytes from the beginning of that memory to the array's first element.
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
        """Return the array itself, in that memory."""
        found: npt.NDArray[Any] = np.ndarray(
            self.shape, self.dtype, shared.data, self.offset, self.strides
        )
        found.flags.writeable = self.is_writeable
        return found


@dataclass(frozen=True)
class Task:
    """Says what launch the process is asked for.

    Attributes
    ----------
    device, arch : str
    compiled : Compiled
    launch : Launch
        Its arrays are each a :class:`SharedArray`; it has limits.
    variables : mapping of str to (SharedArray, bool)
        Where a variable's bytes lie, and behind them whether it has changed; and whether it begins
        with those. By its symbol.
    file : int or str
        The memory that the processes share: a file that is open in both of them, by its number, or
        its path where a file that is open must have one.
    confirms : bool
        Whether the counts are held against the machine code.
    """

    device: str
    arch: str
    compiled: Compiled
    launch: Launch
    file: int | str
    variables: Mapping[str, tuple[SharedArray, bool]]
    confirms: bool = True


def launch(
    device: str,
    arch: str,
    compiled: Compiled,
    launch: Launch,
    carried: frozenset[str] = frozenset(),
    *,
    grace: float | None = None,
    confirms: bool = True,
) -> tuple[LaunchReport, set[str]]:
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
        where the launch succeeds, and so is what its module's variables hold. Without limits,
        :class:`tilewise.Limits`' own hold.
    carried : frozenset of str
        The symbols of those variables of its module that the process's own is given.
    grace : float, optional
        Seconds that the process may take beyond its limit, to read the task and to answer; by
        default :data:`GRACE`.
    confirms : bool
        Whether the report says if its counts are those of the machine code, which takes the time to
        read that.

    Returns
    -------
    report : LaunchReport
    changed : set of str
        The symbols of the variables that the launch changed.

    Raises
    ------
    LimitError
        If it takes more than its limits allow.
    LaunchError
        If the process ends before its time, if its answer can't be read, or if neither memory nor
        the folder of temporary files has room for the arrays.
    TypeError
        If an array is not the host's.
    LaunchError, CheckError, ValueError
        As :meth:`tilewise.devices.Device.launch`.
    """
    limits = launch.limits or Limits()
    bound = arguments.bind(compiled.name, compiled.parameters, launch.args)
    args, arrays, size = _places(bound, launch.args)
    variables, size = _variables(compiled, carried if launch.module else None, size)
    with _shared_file(compiled.name, max(size, 1)) as file:
        shared = np.memmap(file, np.uint8, "r+")
        try:
            for host, place in arrays:
                replace(place, is_writeable=True).of(shared)[...] = host
            name = file.name if sys.platform == "win32" else file.fileno()
            for symbol, (place, is_given) in variables.items():
                if is_given and launch.module is not None:
                    place.of(shared)[:-1] = np.frombuffer(launch.module.read(symbol), np.uint8)
            asked = replace(launch, args=args, limits=limits, module=None)
            report = _asked(
                Task(device, arch, compiled, asked, name, variables, confirms),
                limits,
                GRACE if grace is None else grace,
            )
            for host, place in arrays:
                if place.is_writeable:
                    host[...] = place.of(shared)
            changed = set()
            for symbol, (place, _) in variables.items():
                *held, flag = place.of(shared).tobytes()
                if flag and launch.module is not None:
                    launch.module.write(symbol, bytes(held))
                    changed.add(symbol)
        finally:
            del shared  # Windows removes no file that is mapped
    return report, changed


def _variables(
    compiled: Compiled, carried: frozenset[str] | None, size: int
) -> tuple[dict[str, tuple[SharedArray, bool]], int]:
    """Places in the shared memory for variables, each with a byte that says if it has changed.

    Parameters
    ----------
    carried : frozenset of str or None
        Those that are given a value; None where the launch has no module.
    size : int
        Bytes that are taken already.
    """
    found: dict[str, tuple[SharedArray, bool]] = {}
    if carried is None:
        return found, size
    for each in compiled.variables:
        is_given = each.symbol in carried
        # An address has no meaning in another process.
        if is_given or (each.space == "device" and each.declared[-1:] not in ("", "*")):
            place = SharedArray(size, (each.size + 1,), (1,), np.dtype(np.uint8), True)
            found[each.symbol], size = (place, is_given), size + each.size + 1
    return found, size


@contextmanager
def _shared_file(kernel: str, size: int) -> Iterator[IO[bytes]]:
    """Open a file of ``size`` bytes that another process can open too, in memory if it has room.

    It has no name, so that nothing is left of it when both processes have ended, however they end;
    on Windows it has one, and is removed here.
    """
    refused: OSError | None = None
    with ExitStack() as stack:
        for folder in (_SHARED_FOLDER, Path(tempfile.gettempdir())):
            try:
                file = stack.enter_context(_opened(folder))
                _reserve(file, size)
            except OSError as error:
                refused = error
                continue
            yield file
            return
    raise LaunchError(
        f"{kernel}: its arrays take {size:,} bytes, which an isolated launch shares with its "
        f"process, and there is no room for them: {refused}"
    )


@contextmanager
def _opened(folder: Path) -> Iterator[IO[bytes]]:
    if sys.platform != "win32":
        with tempfile.TemporaryFile(dir=folder) as file:
            yield file
        return
    with (
        tempfile.TemporaryDirectory(prefix="tilewise-", dir=folder) as own,
        (Path(own) / "arrays").open("w+b") as named,
    ):
        yield named


def _reserve(file: IO[bytes], size: int) -> None:
    """Make a file as long as ``size`` bytes; raise OSError if there is no room for them.

    A file that is only made longer gets its room when it is written: a process that writes it
    through its memory then is killed if there is none.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


def _places(
    bound: Sequence[ScalarArgument | ArrayArgument], given: Sequence[Any]
) -> tuple[tuple[Any, ...], list[tuple[npt.NDArray[Any], SharedArray]], int]:
    """Return the arguments with arrays by their places, the arrays, and how many bytes they take.

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
    extents = {number: extent(host) for number, host in hosts.items()}
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
            assert isinstance(argument, ArrayArgument)
            if argument.map is not None:
                args.append(MappedArray(place, argument.map))
            else:
                args.append(Pointer(place, argument.offset) if argument.offset else place)
            arrays.append((host, place))
        elif isinstance(argument, ScalarArgument) and argument.parameter.type == "b8":
            args.append(argument.data)
        else:
            args.append(given[number])
    return tuple(args), arrays, size


def _asked(task: Task, limits: Limits, grace: float) -> LaunchReport:
    """Ask a process for a launch, and return or raise what it answers."""
    files = (task.file,) if isinstance(task.file, int) else ()
    seconds = None if limits.seconds is None else limits.seconds + grace
    clock = Clock(seconds, task.compiled.file)
    try:
        heard = processes.ask(
            "tilewise.isolated_process", pickle.dumps(task), clock, files=files,
            may_fork=task.device != "gpu",  # CUDA forbids it where it was begun before
        )  # fmt: skip
    except TimeoutError as error:
        raise LaunchError(f"{task.compiled.name}: the launch did not start: {error}") from None
    if heard.is_late:
        assert limits.seconds is not None
        raise exceeded("seconds", limits.seconds, task)
    try:
        answer = Reader(heard.said).load()
    except pickle.UnpicklingError as error:
        if limits.memory is not None and task.device != "gpu" and heard.is_out_of_memory:
            raise exceeded("memory", limits.memory, task) from None
        what = f"its answer can't be read: {error}" if heard.said else "said nothing"
        raise LaunchError(
            f"{task.compiled.name}: the process that launched it ended with {heard.how}, and {what}"
        ) from None
    if isinstance(answer, LaunchReport):
        return answer
    raise answer


def exceeded(limit: str, value: float, task: Task) -> LimitError:
    """Return the error that names a limit, where it is not known which line was executed."""
    return LimitError(limit, value, "the launch was stopped", task.compiled.file)


class Reader(pickle.Unpickler):
    """Reads an answer from a process that is not trusted.

    Of classes and functions an answer can name only the fixed set of our own classes that reports
    and errors are made of, ``ValueError`` and ``TypeError``. So reading it calls nothing but these
    classes. What values they are given is not looked at: a report may say anything, and an answer
    may set attributes of these classes themselves.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(BytesIO(data))

    def load(self) -> LaunchReport | Exception:
        """Read the answer.

        Raises
        ------
        pickle.UnpicklingError
            If it is neither a report nor an error, or can't be read.
        """
        try:
            answer: Any = super().load()
        except pickle.UnpicklingError:
            raise
        except Exception as error:  # nearly any, as its bytes may say anything
            raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from error
        if isinstance(answer, LaunchReport) or type(answer) in _ERRORS:
            found: LaunchReport | Exception = answer
            return found
        raise pickle.UnpicklingError("it is neither a report nor an error")

    def find_class(self, module: str, name: str) -> type:
        """Return the class of an answer's part.

        Raises
        ------
        pickle.UnpicklingError
            If answers have no such parts.
        """
        try:
            return _CLASSES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"an answer has no {module}.{name} in it") from None
