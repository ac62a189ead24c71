"""A module that processes run: each answers by doing what it is asked."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

# As tilewise's own modules that processes run, without what the packages import.
for _name in ("tilewise", "tilewise.compiler"):
    _found = importlib.util.find_spec(_name)
    assert _found is not None
    _package = sys.modules[_name] = types.ModuleType(_name)
    _package.__path__ = _found.submodule_search_locations or []

from tilewise.compiler import confine, processes  # noqa: E402


def _full(megabytes: str) -> str:
    """Take memory until there is no more."""
    confine.limit_memory(int(megabytes) << 20)
    taken = []
    try:
        while True:
            taken.append(bytes(1 << 20))
    except MemoryError:
        return str(len(taken))


def _growing() -> str:
    """Take memory until somebody says that there is no more."""
    taken = []
    try:
        while True:
            taken.append(bytes(1 << 16))
            time.sleep(0.001)
    except MemoryError:
        taken.clear()
        return "stopped"


def _slowly(file: str) -> str:
    """Take a minute, and say in a file who does."""
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
    """What is open, without the numbers of sockets and pipes."""
    return [
        str(each.readlink()).partition(":")[0]
        for each in Path("/proc/self/fd").iterdir()
        if each.is_symlink()
    ]


def answer(asked: bytes) -> bytes:
    """Answer ``b"what more"``."""
    what, *more = asked.decode().split(" ", 1)
    return str(ANSWERS[what](*more)).encode()


def main() -> None:
    """Answer what is asked on standard input, or fork processes that do."""
    processes.serve(lambda: answer)
