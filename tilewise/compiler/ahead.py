"""Compile kernels before they are needed, several at a time.

NVRTC compiles one source at a time in a process, or little more: of two threads, one mostly waits
for the other. So this starts more processes; what they make comes back by the cache on disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol, Self

from tilewise.compiler import cache, compile, confine, key_of, shipped
from tilewise.compiler.underway import underway
from tilewise.errors import TilewiseError

WORKERS = 16
IDLE = 5.0  # seconds after which a process that compiles beside this one ends
_COMPILED = "compiled"


class Source(Protocol):
    """Describes a kernel of a file: :class:`tilewise.Kernel` is one."""

    path: Path | None
    source: str
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


def compile_beside(kernels: Iterable[Source], arch: str, workers: int) -> None:
    """Have other processes compile into the cache on disk what it lacks, without lines.

    Does not wait. A process that had nothing to do for a while ends, and so do all with this one:
    then what has not begun is not compiled.

    Parameters
    ----------
    kernels : iterable of Source
        Of files; the first ones first.
    arch : str
    workers : int
        How many processes at most, those of earlier calls included.
    """
    for kernel in kernels:
        key = key_of(
            kernel.source, kernel.name, defines=kernel.defines, arch=arch, path=kernel.path,
            options=kernel.options, lines=False,
        )  # fmt: skip
        if key is not None and cache.size(key) is None and underway.put(key, (kernel, arch)):
            _one_more_process(workers)


_beside: set[threading.Thread] = set()
_beside_lock = threading.Lock()


def _begin_anew() -> None:
    """Forget the threads of the process that this one was forked from: they are not here."""
    global _beside_lock
    _beside_lock = threading.Lock()
    _beside.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _one_more_process(most: int) -> None:
    with _beside_lock:
        if len(_beside) < most:
            thread = threading.Thread(target=_compile_the_queue, name="compile beside", daemon=True)
            _beside.add(thread)
            thread.start()


def _compile_the_queue() -> None:
    """Have a process compile what waits in the queue, until nothing comes for a while."""
    with ExitStack() as stack:
        stack.callback(_beside.discard, threading.current_thread())  # whatever ends it
        process: _Process | None = None
        while (taken := underway.take(IDLE)) is not None or not _has_ended():
            if taken is None:
                continue
            key, (kernel, arch) = taken
            try:
                if process is None:
                    process = stack.enter_context(_Process())
                if not process.compile(kernel, arch, lines=False):
                    return  # it has ended
            except OSError:  # no process can be started
                return
            finally:
                underway.end(key)


def _has_ended() -> bool:
    """Let this thread end, unless a job came in the last moment, for which no other may begin."""
    with _beside_lock:
        if underway.queue:
            return False
        _beside.discard(threading.current_thread())
        return True


class _Waiting:
    """Gives each of the kernels that wait to one process."""

    def __init__(self, kernels: Sequence[Source]) -> None:
        self._kernels = iter(kernels)
        self._lock = threading.Lock()

    def next(self) -> Source | None:
        with self._lock:
            return next(self._kernels, None)


def _in_a_process(
    waiting: _Waiting, arch: str, lines: bool, done: Callable[[], object]
) -> list[str]:
    """Have a process compile kernels as long as some wait; return why those failed that did.

    Where the process ends before its time, the next kernel gets another one.
    """
    failures = []
    kernel = waiting.next()
    while kernel is not None:
        with _Process() as process:
            said = _COMPILED
            while kernel is not None and said:
                said = process.compile(kernel, arch, lines)
                if said != _COMPILED:
                    failures.append(
                        f"{kernel.name}: {said or 'the process that compiled it ended'}"
                    )
                done()
                kernel = waiting.next()
    return failures


class _Process:
    """Runs a process that compiles what it is asked for on its standard input, a line each."""

    def __enter__(self) -> Self:
        self._process = _process()
        return self

    def __exit__(self, *_: object) -> None:
        with self._process, suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def compile(self, kernel: Source, arch: str, lines: bool) -> str:
        """Return ``_COMPILED``, why it does not compile, or "" where the process has ended."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        asked = [str(kernel.path), kernel.name, kernel.defines, kernel.options, arch, lines]
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            return process.stdout.readline().decode(errors="replace").strip()
        except OSError:
            return ""


def _process() -> subprocess.Popen[bytes]:
    """Start a process for :func:`main`; it imports nothing from the working directory."""
    return confine.python(__name__)


def cores() -> int:
    """Return how many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def main() -> None:
    """Compile what is asked for on standard input, a line each, until that ends."""
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
