"""What a process may take and open, made less by the process itself."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

# Linux's <linux/landlock.h>: the system calls, alike on every architecture, and the rights of the
# first version; reading and writing files, reading folders, making and removing files.
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_RIGHTS = (1 << 13) - 1
_VERSION = 1 << 0
_NO_NEW_PRIVILEGES = 38  # <linux/prctl.h>


def limit_memory(more: int) -> None:
    """Let this process take ``more`` bytes of memory beyond what it has; then it gets none."""
    if sys.platform != "linux":
        return
    import resource  # Unix alone has it

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + more
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def close_files() -> bool:
    """Let this process open no file from now on; those that are open stay.

    Returns
    -------
    bool
        Whether the system can do that: Linux from 5.13 on, with Landlock.
    """
    if sys.platform != "linux":
        return False
    system = ctypes.CDLL(None, use_errno=True)
    if system.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION) < 1:
        return False
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
