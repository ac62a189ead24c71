"""Answer requests in a process of its own, each by an action that a test names."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

# Import tilewise.compiler without its __init__, as the modules that tilewise's own processes run.
for _name in ("tilewise", "tilewise.compiler"):
    _found = importlib.util.find_spec(_name)
    assert _found is not None
    _package = sys.modules[_name] = types.ModuleType(_name)
    _package.__path__ = _found.submodule_search_locations or []

from tilewise.compiler import confine, processes  # noqa: E402


def _full(megabytes: str) -> str:
    """Take memory until the limit is reached; return the MiB taken."""
    confine.limit_memory(int(megabytes) << 20)
    taken = []
    try:
        while True:
            taken.append(bytes(1 << 20))
    except MemoryError:
        return str(len(taken))


def _growing() -> str:
    """Take memory slowly until an allocation fails."""
    taken = []
    try:
        while True:
            taken.append(bytes(1 << 16))
            time.sleep(0.001)
    except MemoryError:
        taken.clear()
        return "stopped"


def _slowly(file: str) -> str:
    """Take a minute; write the process's and its parent's numbers to a file first."""
    Path(file).write_text(f"{os.getpid()} {os.getppid()}\n")
    time.sleep(60)
    return "late"


ANSWERS: dict[str, Callable[..., object]] = {
    "say": str,
    "die": lambda number: os.kill(os.getpid(), int(number)),
    "exit": lambda code: os._exit(int(code)),
    "who": lambda: f"{os.getpid()} {os.getppid()}",
    "slowly": _slowly,
    "full": _full,
    "growing": _growing,
    "wait": lambda seconds: time.sleep(float(seconds)),
    "variable": lambda name: os.environ.get(name),
    "folder": os.getcwd,
    "read": lambda number: os.read(int(number), 100).decode(),
    "open": lambda: " ".join(_open()),
    "ctrl-c": lambda: os.kill(os.getpid(), signal.SIGINT),
    "much": lambda size: "x" * int(size),
}


def _open() -> list[str]:
    """Return the open files; of sockets and pipes the kind alone."""
    return [
        str(each.readlink()).partition(":")[0]
        for each in Path("/proc/self/fd").iterdir()
        if each.is_symlink()
    ]


def answer(asked: bytes) -> bytes:
    """Answer a request ``b"NAME ARGUMENT"`` by the function of that name in ANSWERS."""
    what, *more = asked.decode().split(" ", 1)
    return str(ANSWERS[what](*more)).encode()


def main() -> None:
    """Answer the requests on standard input, or fork processes that do."""
    processes.serve(lambda: answer)
