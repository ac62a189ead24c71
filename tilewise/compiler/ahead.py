"""Compile kernels before they are needed, several at a time, into the cache on disk.

Threads ask for them, each of which waits for a process that compiles (:attr:`Request.apart`), or
where there can be none compiles itself. Threads of one process wait for one another in NVRTC's
front end, and processes do not.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import Protocol

from tilewise.compiler import Request, cache, compile_request, key_of
from tilewise.compiler.underway import underway
from tilewise.errors import TilewiseError

WORKERS = 16
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # microseconds of processor time, and of the period
_REFUSED = (TilewiseError, OSError, ValueError, TypeError, MemoryError)


class Source(Protocol):
    """The description of a kernel of a file; :class:`tilewise.Kernel` is one."""

    name: str

    def request(self, arch: str, *, lines: bool) -> Request: ...


def compile_ahead(
    kernels: Sequence[Source],
    arch: str,
    done: Callable[[], object] = lambda: None,
    *,
    lines: bool = True,
    workers: int | None = None,
) -> list[str]:
    """Compile kernels into the cache on disk.

    A kernel that does not compile, or can't be kept, is left to the caller that needs it.

    Parameters
    ----------
    kernels : sequence of Source
        The kernels, which have to be of files.
    arch : str
    done : callable
        A function that is called when each kernel is done, from any thread.
    lines : bool
        Whether to compile with lines, as in :func:`tilewise.compiler.compile`.
    workers : int, optional
        The most threads, at least 1; by default one for each core, up to :data:`WORKERS`.

    Returns
    -------
    list of str
        Why kernels did not compile, one line each; empty if all did.

    Raises
    ------
    TypeError, ValueError
        As :func:`check_workers`.
    """
    threads = check_workers(workers) or min(WORKERS, cores())

    def failure(kernel: Source) -> str:
        try:
            compile_request(_asked(kernel, arch, lines))
        except _REFUSED as error:
            told = " ".join(str(error).split())
            return f"{kernel.name}: {type(error).__name__}: {told}"
        finally:
            done()
        return ""

    pool = ThreadPoolExecutor(threads)
    try:
        return [each for each in pool.map(failure, kernels) if each]
    finally:
        pool.shutdown(cancel_futures=True)


def check_workers(workers: int | None) -> int | None:
    """Return a caller's number of threads.

    Raises
    ------
    TypeError
        If it is neither an integer nor None.
    ValueError
        If it is below 1.
    """
    if workers is None:
        return None
    try:
        count = index(workers)
    except TypeError:
        count = None
    if count is None or isinstance(workers, bool):
        raise TypeError(f"workers is {workers!r}; it takes a number of threads, or None")
    if count < 1:
        raise ValueError(f"workers is {count:,}; it must be at least 1")
    return count


def compile_beside(
    kernels: Iterable[Source], arch: str, workers: int, *, is_urgent: bool = False
) -> None:
    """Let other threads compile kernels that the cache on disk lacks, without lines.

    The call does not wait. After the process's main thread has ended, the threads finish the
    kernels that they have begun, and take no more.

    Parameters
    ----------
    kernels : iterable of Source
        The kernels, which have to be of files, the first ones first.
    arch : str
    workers : int
        The most threads, including those of earlier calls.
    is_urgent : bool
        Whether they go before kernels that wait already.
    """
    for kernel in reversed(list(kernels)) if is_urgent else kernels:
        if not _is_running():
            return
        key = key_of(kernel.request(arch, lines=False))
        if key is None or cache.size(key) is not None:
            continue
        if underway.put(key, (kernel, arch), is_first=is_urgent):
            _one_more_thread(workers)


def _asked(kernel: Source, arch: str, lines: bool) -> Request:
    return kernel.request(arch, lines=lines)._replace(apart=True)


def wait(seconds: float) -> bool:
    """Wait until no thread of :func:`compile_beside` is left, at most so long.

    Returns
    -------
    bool
        Whether none is left.
    """
    end = time.monotonic() + seconds
    for thread in _started():
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in _started())


def cores() -> int:
    """Return the number of cores that this process may use; in a container, as its quota allows."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    found = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # no control groups of version 2, or no quota ("max")
        quota, period = map(int, CPU_QUOTA.read_text().split())
        found = min(found, max(1, -(-quota // period)))
    return found


_beside: set[threading.Thread] = set()
_beside_lock = threading.Lock()


def _begin_anew() -> None:
    """Forget the threads of the process that this one was forked from: they are not here."""
    global _beside_lock
    _beside_lock = threading.Lock()
    _beside.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _started() -> list[threading.Thread]:
    """Return the threads that have started: one is added and started under the lock."""
    with _beside_lock:
        return list(_beside)


def _one_more_thread(most: int) -> None:
    with _beside_lock:
        if len(_beside) >= most:
            return
        thread = threading.Thread(target=_compile_the_queue, name="compile beside", daemon=True)
        _beside.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the process is ending, or the system has no more threads
            _beside.discard(thread)


@atexit.register
def _wait_for_threads() -> None:
    """Wait, when the process ends, for the kernels that threads have begun.

    NVRTC must not be unloaded while it compiles. Ctrl-C ends the process without this wait.
    """
    try:
        for thread in _started():
            thread.join()
    except KeyboardInterrupt:  # Python would print it, and go on to unload NVRTC
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
                stream.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def _compile_the_queue() -> None:
    while _is_running():
        taken = underway.take()
        if taken is None and _may_end():
            return
        if taken is not None:
            key, (kernel, arch) = taken
            try:
                compile_request(_asked(kernel, arch, False))
            except Exception:
                pass  # whatever it is, who asks for the kernel is told
            finally:
                underway.end(key)


def _may_end() -> bool:
    """Let this thread end, unless a job came in the last moment, for which no other may begin."""
    with _beside_lock:
        if underway.queue:
            return False
        _beside.discard(threading.current_thread())
        return True


def _is_running() -> bool:
    """Return whether the process's main thread still runs."""
    return threading.main_thread().is_alive()
