"""Processes that run one module, answer one request, and are limited in memory and in files."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tilewise.compiler.clock import Clock

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows has none
    resource = None

START_SECONDS = 60.0
"""How long a process may take until it is ready to be asked. After that it is killed."""
_STARTED = b"!"

# <linux/landlock.h>: the numbers of the system calls, which are the same on every architecture, and
# all the rights of Landlock's first version: to execute, read and write files, to read folders, and
# to make and remove files and folders.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RIGHTS = (1 << 13) - 1
_READ = 1 << 2 | 1 << 3  # files and folders
_BENEATH = 1  # a rule for a folder and all that is below it
_VERSION = 1 << 0
_NO_NEW_PRIVILEGES = 38  # <linux/prctl.h>


# The packages that the module is in are created empty, without running their __init__.py: those
# import most of tilewise, and no compilation should wait for that.
# Ctrl-C in a terminal reaches this process too. It ignores it: the process that waits for this one
# ends it.
_RUN = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
import importlib, sys, types
place, module = sys.argv[1:]
packages = module.split(".")[:-1]
for count in range(1, len(packages) + 1):
    name = ".".join(packages[:count])
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = ["/".join([place, *packages[1:count]])]
importlib.import_module(module).main()
"""


def python(module: str, files: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a process that runs a module's ``main``.

    It is asked on its standard input, and answers on its standard output. It finds the same
    packages as this one, and no others: not those of the working directory. Of this one's open
    files it has those of the numbers ``files``, under the same numbers.
    """
    path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _RUN, str(Path(__file__).parents[1]), module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env={**os.environ, "PYTHONPATH": path},
        pass_fds=files,
    )


def wait_for_start(process: subprocess.Popen[bytes]) -> bool:
    """Wait until a process is ready to be asked, or has ended: its time begins then.

    Returns
    -------
    bool
        Whether it is ready.

    Raises
    ------
    TimeoutError
        If it is not ready in time. It is killed then.
    """
    assert process.stdout is not None
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        process.kill()

    timer = threading.Timer(START_SECONDS, end)
    timer.start()
    try:
        is_started = process.stdout.read(len(_STARTED)) == _STARTED
    finally:
        timer.cancel()
    if is_late.is_set():
        raise TimeoutError(f"its process was not ready within {START_SECONDS:g} seconds")
    return is_started


@dataclass(frozen=True)
class Heard:
    """The answer of a process, and how the process ended.

    Attributes
    ----------
    said : bytes
        The answer; empty where there is none.
    is_started : bool
        Whether it became ready to be asked.
    is_late : bool
        Whether it was killed because its time was over.
    code : int
        Its exit code, or the signal that ended it, negative.
    """

    said: bytes
    is_started: bool
    is_late: bool
    code: int

    @property
    def is_out_of_memory(self) -> bool:
        """Whether it ended because it got no more memory than its limit.

        Then a library aborts it, or the system kills it. An end by another signal, such as a
        segmentation fault, has another cause; so has any end on a system that can't limit memory,
        or before the process has set its limit.
        """
        if not (self.is_started and can_limit_memory()):
            return False
        return -self.code in (signal.SIGABRT, signal.SIGKILL)

    @property
    def how(self) -> str:
        """The exit code of the process, or the signal that ended it, in words."""
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return f"signal {signal.Signals(-self.code).name}"
        except ValueError:
            return f"signal {-self.code}"


def ask(
    module: str, asked: bytes, clock: Clock, *, files: Sequence[int] = (), grace: float = 0.0
) -> Heard:
    """Start a process, ask it, and wait for its answer; it has ended when this returns or raises.

    Parameters
    ----------
    module, files
        As :func:`python` takes them; the module's ``main`` calls :func:`serve`.
    asked : bytes
    clock : Clock
        The time that is left. It does not run while the process starts. When it is over, the
        process is killed.
    grace : float
        When the time is over, the process gets no more memory, and has so many seconds to answer
        before it is killed.

    Raises
    ------
    TimeoutError
        If it is not ready to be asked within :data:`START_SECONDS`.
    """
    is_late = False
    with python(module, files) as process:
        try:
            is_started = wait_for_start(process)
            try:
                with clock.running():
                    said, _ = process.communicate(asked, clock.left())
            except subprocess.TimeoutExpired:
                is_late, said = True, _last_words(process, grace) if grace else b""
        finally:
            process.kill()
    return Heard(said, is_started, is_late, process.returncode)


def _last_words(process: subprocess.Popen[bytes], grace: float) -> bytes:
    """The answer of a process that is given no more memory from now on; empty if there is none."""
    try:
        stop_memory(process.pid)
        return process.communicate(timeout=grace)[0]
    except (OSError, subprocess.TimeoutExpired):
        return b""


def serve(prepare: Callable[[], Callable[[bytes], bytes]]) -> None:
    """Answer what :func:`ask` asks this process, and end it.

    Parameters
    ----------
    prepare : callable
        Called before the process says that it is ready: it loads libraries, for instance. It
        returns the function that makes the answer of the request.
    """
    # Standard output is for the answer alone: what libraries print must not get into it.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        answer = prepare()
        answers.write(_STARTED)
        answers.flush()
        said = answer(sys.stdin.buffer.read())
        with suppress(BrokenPipeError):
            answers.write(said)
            answers.flush()
    os._exit(0)


def can_limit_memory() -> bool:
    """Return whether this system limits what memory a process takes: Linux does."""
    return resource is not None and sys.platform == "linux"


def limit_memory(more: int) -> None:
    """Let this process take ``more`` bytes of memory beyond what it has; on Linux alone."""
    if resource is not None and sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = _address_space(os.getpid()) + more
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def stop_memory(process: int) -> None:
    """Let another process take no more memory than it has.

    Raises
    ------
    OSError
        If it has ended, or the system can't do that.
    """
    if resource is None or sys.platform != "linux":
        raise OSError("this system sets no limits of other processes")
    most = _address_space(process)
    resource.prlimit(process, resource.RLIMIT_AS, (most, most))


def _address_space(process: int) -> int:
    """Bytes of a process's address space."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def can_close_files() -> bool:
    """Whether this system knows Landlock."""
    if sys.platform != "linux":
        return False
    system = ctypes.CDLL(None, use_errno=True)
    found: bool = system.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION) >= 1
    return found


def close_files(*but: Path) -> bool:
    """Let this process open no file from now on; those that are open stay.

    Parameters
    ----------
    *but : Path
        Folders in which it may read all the same.

    Returns
    -------
    bool
        Whether the system can do that: Linux from 5.13 on, with Landlock.
    """
    if not can_close_files():
        return False
    system = ctypes.CDLL(None, use_errno=True)
    handled = ctypes.c_uint64(_RIGHTS)
    rules = system.syscall(
        _CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(ctypes.sizeof(handled)), 0
    )
    if rules < 0:
        return False
    for folder in but:
        if folder.is_dir():
            number = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            beneath = ctypes.create_string_buffer(struct.pack("=Qi", _READ, number), 12)
            system.syscall(_ADD_RULE, rules, _BENEATH, beneath, 0)
            os.close(number)
    system.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    is_closed: bool = system.syscall(_RESTRICT_SELF, rules, 0) == 0
    os.close(rules)
    return is_closed
