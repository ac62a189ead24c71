"""The restrictions of a process that compiles or launches untrusted code: memory and files."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
from pathlib import Path
from types import ModuleType

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows has none
    resource = None

# <linux/landlock.h>: the numbers of the system calls, which are the same on every architecture, and
# all the rights of Landlock's first version: to execute, read and write files, to read folders, and
# to make and remove files and folders.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RIGHTS = (1 << 13) - 1
_READ = 1 << 2 | 1 << 3  # files and folders
_BENEATH = 1  # a rule for a folder and all that is below it
_VERSION = 1 << 0
_END_SIGNAL, _NO_NEW_PRIVILEGES = 1, 38  # <linux/prctl.h>


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
    """Return the bytes of a process's address space."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def can_close_files() -> bool:
    """Return whether this system knows Landlock."""
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


def end_with(parent: int) -> None:
    """Let this process be killed when its parent ends; only on Linux.

    Parameters
    ----------
    parent : int
        The parent's process number. If the parent has ended already, this process ends at once.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_END_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
