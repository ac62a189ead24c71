"""Ask a server to fork a process for one request, with the libraries loaded already.

To start Python and to load NVRTC takes some 0.1 s, and NumPy and the emulator 0.3 s; to fork a
process that has them takes some milliseconds. So on Linux a process that compiles within limits, or
launches in a process of its own, starts one server a module
(:mod:`tilewise.compiler.fork_server`). Where there can be no server, each request starts a process
of its own (:mod:`tilewise.compiler.processes`).

Of the process that asks, a forked one has the environment and the working directory of the moment,
and what the server was started with otherwise, such as resource limits.
"""

from __future__ import annotations

import atexit
import math
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from tilewise.compiler import starting
from tilewise.compiler.fork_server import (
    ASKED,
    FORKED,
    KILL,
    PIECE,
    STATUS,
    STOP_MEMORY,
    received,
)

_PAUSE = 600.0  # seconds until another server is started where one was not ready in time
_PATIENCE = 10.0  # seconds until a server is given up that does not say how a process ended


class Forked:
    """A process that a server forked, and that waits to be asked.

    Parameters
    ----------
    control : socket
        The socket to the server.
    channel : socket
        The socket to the process.
    head : bytes
        The bytes that precede the request.
    """

    def __init__(self, control: socket.socket, channel: socket.socket, head: bytes) -> None:
        self._control, self._channel = control, channel
        self._head, self._said = head, bytearray()
        self._status = b""

    def ask(self, asked: bytes, seconds: float | None) -> bytes:
        """Return its answer, when it has ended.

        Raises
        ------
        TimeoutError
            If it has not ended in time.
        """
        deadline = _deadline(seconds)
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended
            for data in (self._head, asked):
                left = memoryview(data)
                while left:
                    _limit(self._channel, deadline)
                    left = left[self._channel.send(left, socket.MSG_NOSIGNAL) :]
            self._channel.shutdown(socket.SHUT_WR)
        return self._hear(deadline)

    def last_words(self, seconds: float) -> bytes:
        """Give it no more memory from now on, and return its answer; empty if there is none."""
        try:
            self._control.send(STOP_MEMORY, socket.MSG_NOSIGNAL)
            return self._hear(_deadline(seconds))
        except OSError:
            return b""

    def _hear(self, deadline: float | None) -> bytes:
        with suppress(ConnectionResetError):  # it ended before it had read everything
            while True:
                _limit(self._channel, deadline)
                piece = self._channel.recv(PIECE)
                if not piece:
                    break
                self._said += piece
        _limit(self._control, deadline)
        self._status = received(self._control, STATUS.size)
        return bytes(self._said)

    def end(self) -> int:
        """Kill the process if it has not ended; return its exit code, or the negative
        signal number.
        """
        if not self._status:
            with suppress(OSError):
                self._control.send(KILL, socket.MSG_NOSIGNAL)
            with suppress(OSError):
                self._control.settimeout(_PATIENCE)
                self._status = received(self._control, STATUS.size)
        self._control.close()
        self._channel.close()
        if not self._status:  # the server was killed, and so was what it forked
            return -signal.SIGKILL
        return os.waitstatus_to_exitcode(STATUS.unpack(self._status)[0])


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


def _limit(channel: socket.socket, deadline: float | None) -> None:
    """Let the next call of a channel raise TimeoutError when the time is over."""
    left = None if deadline is None else deadline - time.monotonic()
    if left is not None and left <= 0:
        raise TimeoutError
    channel.settimeout(left)


_servers: dict[str, tuple[tuple[starting.Command, str], socket.socket]] = {}
_refused: dict[str, float] = {}
"""The modules whose server did not start when :func:`has_server` asked for it, and the time until
which no other is started.
"""
_lock = threading.Lock()


def can_fork() -> bool:
    """Return whether this system forks processes that load no library anew: Linux does."""
    return sys.platform == "linux" and hasattr(socket, "send_fds")


def has_server(module: str) -> bool:
    """Return whether :func:`fork` can fork a process of a module; a server is started if needed.

    Where one did not start, none is started again. Where one was not ready in time, as on a machine
    that has too much to do, none is started for a while, since each attempt takes as long.
    """
    if not can_fork() or time.monotonic() < _refused.get(module, -math.inf):
        return False
    try:
        found = _server(module)
    except TimeoutError:
        _refused[module] = time.monotonic() + _PAUSE
        return False
    if found is None:
        _refused[module] = math.inf
    return found is not None


def fork(module: str, files: Sequence[int] = ()) -> Forked | None:
    """Fork a process that answers one request, by a server that is started if there is none.

    Parameters
    ----------
    module : str
        The module, whose ``main`` calls :func:`tilewise.compiler.processes.serve`.
    files : sequence of int
        The open files of this process that it gets too, under the same numbers.

    Returns
    -------
    Forked or None
        The process; None if there can be no server, or it can't fork. :meth:`Forked.end` must be
        called.

    Raises
    ------
    TimeoutError
        If the server is not ready within :data:`tilewise.compiler.starting.START_SECONDS`.
    """
    if not can_fork():
        return None
    head = pickle.dumps(dict(os.environb))
    asked = struct.pack(f"{len(files)}i", *files)
    for _ in range(2):  # a server may end just when it is asked, for it was idle
        server = _server(module)
        if server is None:
            return None
        with ExitStack() as ends:
            try:
                with (
                    _pair(socket.SOCK_SEQPACKET, ends) as (control, to_server),
                    _pair(socket.SOCK_STREAM, ends) as (channel, to_process),
                    _folder() as folder,
                ):
                    given = [to_server.fileno(), to_process.fileno(), folder, *files]
                    socket.send_fds(server, [ASKED, asked], given, socket.MSG_NOSIGNAL)
                control.settimeout(starting.START_SECONDS)
                is_forked = received(control, len(FORKED)) == FORKED
            except OSError:
                is_forked = False
            if is_forked:
                ends.pop_all()
                return Forked(control, channel, head)
        _forget(module, server)
    return None


@contextmanager
def _pair(kind: int, ends: ExitStack) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield two ends of a channel, of which the first one stays open until ``ends`` closes it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    ends.enter_context(ours)
    with theirs:
        yield ours, theirs


@contextmanager
def _folder() -> Iterator[int]:
    """The working directory, opened."""
    folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def _server(module: str) -> socket.socket | None:
    """Return the channel to a module's server; None if it does not start."""
    key = starting.command(module)
    with _lock:
        known, server = _servers.get(module, (None, None))
        if server is not None and known == key:
            return server
        if server is not None:
            server.close()
        server = _started(module)
        if server is None:
            _servers.pop(module, None)
        else:
            _servers[module] = key, server
        return server


def _started(module: str) -> socket.socket | None:
    """Start a server."""
    with ExitStack() as ends:
        try:
            with (
                _pair(socket.SOCK_SEQPACKET, ends) as (ours, theirs),
                starting.python(module, [theirs.fileno()], str(theirs.fileno())) as process,
            ):
                try:
                    # The process that was started forks the server, and ends.
                    is_ready = starting.wait_for_start(process) and not process.wait(_PATIENCE)
                finally:
                    process.kill()
        except TimeoutError:
            raise
        except (OSError, subprocess.SubprocessError):
            return None
        if is_ready:
            ends.pop_all()
            return ours
    return None


def _forget(module: str, server: socket.socket) -> None:
    with _lock:
        if _servers.get(module, (None, None))[1] is server:
            del _servers[module]
        server.close()


def end_servers() -> None:
    """End all servers that this process has started."""
    with _lock:
        for _, server in _servers.values():
            server.close()
        _servers.clear()


def _begin_anew() -> None:
    """Have no server, in a process that was forked: those are its parent's."""
    global _lock
    _lock = threading.Lock()
    _refused.clear()
    end_servers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
atexit.register(end_servers)
