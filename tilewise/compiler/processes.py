"""Processes that answer one request each, so that a crash of a library ends only them.

If the system can do that, a server that has loaded the libraries forks the process
(:mod:`tilewise.compiler.forking`); otherwise it is started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tilewise.compiler import confine, fork_server, forking, starting
from tilewise.compiler.clock import Clock


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
        if not (self.is_started and confine.can_limit_memory()):
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
    module: str,
    asked: bytes,
    clock: Clock,
    *,
    files: Sequence[int] = (),
    grace: float = 0.0,
    may_fork: bool = True,
) -> Heard:
    """Send a request to a process of its own, and wait for its answer and its end.

    Parameters
    ----------
    module : str
        The module that the process runs; its ``main`` calls :func:`serve`.
    asked : bytes
    clock : Clock
        The time that is left. It does not run while the process starts. When it is over, the
        process is killed.
    files : sequence of int
        The open files of this process that it gets too, under the same numbers.
    grace : float
        The seconds to answer after the time is over, without further memory, before it is killed.
    may_fork : bool
        Whether it may be forked from a process that serves others too.

    Raises
    ------
    TimeoutError
        If it is not ready to be asked within :data:`tilewise.compiler.starting.START_SECONDS`.
    """
    forked = forking.fork(module, files) if may_fork else None
    if forked is None:
        return _ask_started(module, asked, clock, files, grace)
    is_late = False
    try:
        with clock.running():
            said = forked.ask(asked, clock.left())
    except TimeoutError:
        is_late, said = True, forked.last_words(grace) if grace else b""
    finally:
        code = forked.end()
    return Heard(said, True, is_late, code)


def _ask_started(
    module: str, asked: bytes, clock: Clock, files: Sequence[int], grace: float
) -> Heard:
    """Start a process and ask it."""
    is_late = False
    with starting.python(module, files) as process:
        try:
            is_started = starting.wait_for_start(process)
            try:
                with clock.running():
                    said, _ = process.communicate(asked, clock.left())
            except subprocess.TimeoutExpired:
                is_late, said = True, _last_words(process, grace) if grace else b""
        finally:
            process.kill()
    return Heard(said, is_started, is_late, process.returncode)


def _last_words(process: subprocess.Popen[bytes], grace: float) -> bytes:
    """Return the answer of a process that gets no more memory; empty if there is none."""
    try:
        confine.stop_memory(process.pid)
        return process.communicate(timeout=grace)[0]
    except (OSError, subprocess.TimeoutExpired):
        return b""


def serve(prepare: Callable[[], Callable[[bytes], bytes]]) -> None:
    """Answer what :func:`ask` asks this process, and end it; or fork processes that do.

    Parameters
    ----------
    prepare : callable
        Called before the process says that it is ready: it loads libraries, for instance. It
        returns the function that makes the answer of a request.
    """
    # Standard output is for the answer alone: what libraries print must not get into it.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        answer = prepare()
        answers.write(starting.READY)
        answers.flush()
        if channel := sys.argv[3:]:
            answers.close()
            fork_server.serve(int(channel[0]), answer)
        said = answer(sys.stdin.buffer.read())
        with suppress(BrokenPipeError):
            answers.write(said)
            answers.flush()
    os._exit(0)
