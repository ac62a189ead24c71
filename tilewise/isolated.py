"""Launch a kernel in a process of its own, so that a crash ends only that process."""

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
"""The seconds that a process may take beyond its limit, unless the caller says otherwise."""
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
"""The classes that an answer may contain, because the process is not trusted to send others."""


@dataclass(frozen=True)
class SharedArray:
    """The place of an array in the memory that the processes share.

    Attributes
    ----------
    offset : int
        The bytes from the beginning of that memory to the array's first element.
    shape, strides : tuple of int
        The shape, and the strides in bytes.
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
    """The launch that the process is asked for.

    Attributes
    ----------
    device, arch : str
    compiled : Compiled
    launch : Launch
        The launch, whose arrays are each a :class:`SharedArray`; it has limits.
    variables : mapping of str to (SharedArray, bool)
        By a variable's symbol, the place of its bytes, which are followed by a byte that says
        whether the variable has changed; and whether the variable begins with those bytes.
    file : int or str
        The memory that the processes share: the number of a file that is open in both of them, or
        its path on a system that can't pass on an open file.
    confirms : bool
        Whether the counts are compared with the machine code.
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
        The architecture of the emulator.
    compiled : Compiled
    launch : Launch
        The launch, whose arrays are the host's. They are placed in memory that the processes share,
        and copied back if the launch succeeds, and so are the values of its module's variables.
        Without limits, the defaults of :class:`tilewise.Limits` hold.
    carried : frozenset of str
        The symbols of the module's variables whose values are passed on to the process.
    grace : float, optional
        The seconds that the process may take beyond its limit, to read the task and to answer; by
        default :data:`GRACE`.
    confirms : bool
        Whether the report says if its counts are those of the machine code, which takes time to
        read.

    Returns
    -------
    report : LaunchReport
    changed : set of str
        The symbols of the variables that the launch changed.

    Raises
    ------
    LimitError
        If the launch takes more than its limits allow.
    LaunchError
        If the process ends early, if its answer can't be read, or if neither memory nor the folder
        of temporary files has room for the arrays.
    TypeError
        If an array is not on the host.
    LaunchError, CheckError, ValueError
        As in :meth:`tilewise.devices.Device.launch`.
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
    """Return places in the shared memory for variables, each with a byte for whether it changed.

    Parameters
    ----------
    carried : frozenset of str or None
        The variables that are given a value; None if the launch has no module.
    size : int
        The bytes that are taken already.
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

    The file has no name, so that nothing is left of it when both processes have ended, however they
    end. On Windows it has a name, and is removed here.
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

    A file that is only made longer gets its room when it is written. If there is none then, a
    process that writes it through its memory is killed.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


def _places(
    bound: Sequence[ScalarArgument | ArrayArgument], given: Sequence[Any]
) -> tuple[tuple[Any, ...], list[tuple[npt.NDArray[Any], SharedArray]], int]:
    """Return the arguments with arrays by their places, the arrays, and the bytes that they take.

    Arrays that overlap in the host's memory overlap in the same way in the shared memory.
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
        if begin >= last_end:  # it begins a piece of its own, with the same alignment
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
    """Ask a process for a launch, and return its report or raise its error."""
    files = (task.file,) if isinstance(task.file, int) else ()
    seconds = None if limits.seconds is None else limits.seconds + grace
    clock = Clock(seconds, task.compiled.file)
    try:
        heard = processes.ask(
            "tilewise.isolated_process", pickle.dumps(task), clock, files=files,
            may_fork=task.device != "gpu",  # CUDA does not allow a fork after it was initialised
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
    """Return the error that names a limit, if it is not known which line was executed."""
    return LimitError(limit, value, "the launch was stopped", task.compiled.file)


class Reader(pickle.Unpickler):
    """A reader of an answer from a process that is not trusted.

    An answer can name only a fixed set of classes: our own, of which reports and errors consist,
    ``ValueError`` and ``TypeError``. So reading it calls nothing but these classes. The values that
    they are given are not checked: a report may say anything, and an answer may set attributes of
    these classes themselves.
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
        except Exception as error:  # nearly any error, as its bytes may be anything
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
