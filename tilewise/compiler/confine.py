"""Processes that run one module, and may take and open less than others."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows has none
    resource = None

START_SECONDS = 60.0
"""That a process may take until it is ready; longer is taken for never."""
_STARTED = b"!"

# Linux's <linux/landlock.h>: the system calls, alike on every architecture, and the rights of the
# first version; reading and writing files, reading folders, making and removing files.
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_RIGHTS = (1 << 13) - 1
_VERSION = 1 << 0
_NO_NEW_PRIVILEGES = 38  # <linux/prctl.h>


# The package's own __init__ imports every front door, for which no compilation should wait.
_RUN = """
import importlib, sys, types
package = sys.modules["tilewise"] = types.ModuleType("tilewise")
package.__path__ = [sys.argv[1]]
importlib.import_module(sys.argv[2]).main()
"""


def python(module: str, files: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a process that runs a module's ``main``, is asked and answers by its standard streams.

    It finds the same packages as this one, and no others: not those of the working directory. Of
    this one's open files it has those of the numbers ``files``, under the same numbers.
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


def wait_for_start(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process is ready to be asked, or has ended: its time begins then."""
    assert process.stdout is not None
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        process.stdout.read(len(_STARTED))
    finally:
        timer.cancel()


def say_started(answers: BinaryIO) -> None:
    """Tell the process that waits for this one that it may ask."""
    answers.write(_STARTED)
    answers.flush()


def limit_memory(more: int) -> None:
    """Let this process take ``more`` bytes of memory beyond what it has; then it gets none."""
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


def close_files() -> bool:
    """Let this process open no file from now on; those that are open stay.

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
    system.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    is_closed: bool = system.syscall(_RESTRICT_SELF, rules, 0) == 0
    os.close(rules)
    return is_closed
