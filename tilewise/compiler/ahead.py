"""Kernels compiled before they are needed, several at a time.

NVRTC compiles one source at a time in a process, or little more: of two threads, one mostly waits
for the other. So this takes more processes; the cache on disk brings back what they made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tilewise.compiler import compile, shipped
from tilewise.errors import TilewiseError

WORKERS = 16
_COMPILED = "compiled"


class Source(Protocol):
    """A kernel of a file: :class:`tilewise.Kernel` is one."""

    path: Path | None
    name: str
    defines: dict[str, Any]
    options: Any


def compile_ahead(
    kernels: Sequence[Source],
    arch: str,
    done: Callable[[], object] = lambda: None,
    *,
    lines: bool = True,
    workers: int | None = None,
) -> list[str]:
    """Compile kernels into the cache on disk.

    What does not compile, or can't be kept, is left to whoever asks for it.

    Parameters
    ----------
    kernels : sequence of Source
        Of files.
    arch : str
    done : callable
        Called as each kernel is done, from any thread.
    lines : bool
        As :func:`tilewise.compiler.compile` has it.
    workers : int, optional
        How many processes at most; by default one a core, up to :data:`WORKERS`.

    Returns
    -------
    list of str
        Why a kernel did not compile, one line each; empty where all did.
    """
    if not kernels:
        return []
    waiting = _Waiting(kernels)
    count = workers or min(WORKERS, cores())
    count = max(1, min(count, len(kernels)))
    with ThreadPoolExecutor(count) as pool:
        threads = [pool.submit(_in_a_process, waiting, arch, lines, done) for _ in range(count)]
    return [failure for thread in threads for failure in thread.result()]


def compile_beside(kernels: Sequence[Source], arch: str, workers: int) -> None:
    """Begin to compile kernels into the cache on disk, without lines, and do not wait.

    The process may end before they are done: then those that have not begun are not compiled.

    Parameters
    ----------
    kernels : sequence of Source
    arch : str
    workers : int
        How many processes at most.
    """
    waiting = _Waiting(kernels)
    for _ in range(min(workers, len(kernels))):
        threading.Thread(
            target=_in_a_process, args=(waiting, arch, False, lambda: None), daemon=True
        ).start()


class _Waiting:
    """Kernels that wait for a process; each is given to one."""

    def __init__(self, kernels: Sequence[Source]) -> None:
        self._kernels = iter(kernels)
        self._lock = threading.Lock()

    def next(self) -> Source | None:
        with self._lock:
            return next(self._kernels, None)


def _in_a_process(
    waiting: _Waiting, arch: str, lines: bool, done: Callable[[], object]
) -> list[str]:
    """Have a process compile kernels as long as some wait; why those failed that did.

    Where the process ends before its time, the next kernel gets another one.
    """
    failures = []
    kernel = waiting.next()
    while kernel is not None:
        with _process() as process:
            assert process.stdin is not None
            assert process.stdout is not None
            said = _COMPILED
            while kernel is not None and said:
                asked = [str(kernel.path), kernel.name, kernel.defines, kernel.options, arch, lines]
                try:
                    process.stdin.write(json.dumps(asked) + "\n")
                    process.stdin.flush()
                    said = process.stdout.readline().strip()
                except OSError:
                    said = ""
                if said != _COMPILED:
                    failures.append(
                        f"{kernel.name}: {said or 'the process that compiled it ended'}"
                    )
                done()
                kernel = waiting.next()
            with suppress(OSError):
                process.stdin.close()
    return failures


def _process() -> subprocess.Popen[str]:
    """One that compiles what it is asked for on its standard input, a line each."""
    # It finds the same packages as this one.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    )


def cores() -> int:
    """How many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _main() -> None:
    for line in sys.stdin:
        file, name, defines, options, arch, lines = json.loads(line)
        path = Path(file)
        try:
            source = shipped.text(path) or path.read_text(encoding="utf-8-sig")
            compile(
                source, name, defines=defines, arch=arch, path=path, options=tuple(options),
                lines=lines,
            )  # fmt: skip
        except (TilewiseError, OSError, ValueError, TypeError) as error:
            print(f"{type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        else:
            print(_COMPILED, flush=True)


if __name__ == "__main__":
    _main()
