"""Start Python processes that run one module of tilewise."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

START_SECONDS = 60.0
"""The seconds in which a process has to be ready, before it is killed."""
READY = b"!"
"""The message of a process that it is ready."""

# The packages that the module is in are created empty, without running their __init__.py: those
# import most of tilewise, and no compilation should wait for that.
# Ctrl-C in a terminal reaches this process too. It ignores it: the process that waits for this one
# ends it.
_RUN = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
import importlib, sys, types
place, module = sys.argv[1:3]
packages = module.split(".")[:-1]
for count in range(1, len(packages) + 1):
    name = ".".join(packages[:count])
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = ["/".join([place, *packages[1:count]])]
importlib.import_module(module).main()
"""

Command = tuple[str, ...]


def command(module: str) -> tuple[Command, str]:
    """Return the command that runs a module's ``main``, and the path that its packages are on."""
    path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
    return (sys.executable, "-P", "-c", _RUN, str(Path(__file__).parents[1]), module), path


def python(module: str, files: Sequence[int] = (), *more: str) -> subprocess.Popen[bytes]:
    """Start a process that runs a module's ``main``.

    It is asked on its standard input, and answers on its standard output. It finds the same
    packages as this process, and no others, in particular not those of the working directory.

    Parameters
    ----------
    module : str
    files : sequence of int
        The open files of this process that it gets too, under the same numbers.
    *more : str
        The arguments that :func:`tilewise.compiler.processes.serve` reads.
    """
    words, path = command(module)
    return subprocess.Popen(
        [*words, *more],
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
        is_started = process.stdout.read(len(READY)) == READY
    finally:
        timer.cancel()
    if is_late.is_set():
        raise TimeoutError(f"its process was not ready within {START_SECONDS:g} seconds")
    return is_started
