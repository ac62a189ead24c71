"""A server that forks a process for each request; a single thread that forks and waits.

Each forked process has two channels, which the server is sent with the request for it. On the one
it is asked and answers. On the other, which it can't reach, the server says that it was forked and
how it ended, and is told to kill it; where the other end of that channel is closed, the server
kills it too. So nobody outlives whom it works for: a forked process ends with the one that asked it
and with the server, and the server with the process that started it.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import signal
import socket
import struct
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from typing import NoReturn

from tilewise.compiler import confine

IDLE_SECONDS = 300.0
"""The seconds after which a server without requests ends."""
ASKED, FORKED = b"?", b"!"
"""A request, before the numbers of its files, and what the server says when it has forked."""
KILL, STOP_MEMORY = b"K", b"M"
"""The commands to the server about a process that it forked."""
STATUS = struct.Struct("i")
"""The exit status of a process, as ``os.waitpid`` returns it."""
PIECE = 1 << 20
_MOST_FILES = 64

Answer = Callable[[bytes], bytes]


def received(channel: socket.socket, size: int) -> bytes:
    """Return one message; empty if the other side has ended."""
    for _ in range(2):  # an end that left something unread comes before what it said last
        with suppress(ConnectionResetError):
            return channel.recv(size)
    return b""


def serve(number: int, answer: Answer) -> NoReturn:
    """Fork a process for each request on a channel, until the channel's other end is closed.

    The server is another process than this one, which ends at once. So the process that started it
    has no long-lived child, which a call such as ``os.wait()`` would wait for.

    Parameters
    ----------
    number : int
        The file number of the channel.
    answer : callable
        A function that answers a request, in the process that is forked for it.
    """
    if os.fork() == 0:
        warnings.simplefilter("ignore")  # on threads: of NumPy's libraries, which take care of it
        gc.freeze()  # else the first collection in each process copies all that is loaded
        gc.set_threshold(100_000, 10, 10)  # a process ends soon
        with suppress(BaseException):
            _Server(socket.socket(fileno=number), answer).run()
    os._exit(0)


class _Server:
    """A server that forks processes, reports how they ended, and kills those nothing waits for."""

    def __init__(self, requests: socket.socket, answer: Answer) -> None:
        self._requests, self._answer = requests, answer
        self._children: dict[int, socket.socket] = {}
        self._is_asked = True  # by a process that may ask again
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._ready = selectors.PollSelector()

    def run(self) -> None:
        """Serve until no process can ask any more, or none has asked for a long time."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        for each in (self._requests, self._wake):
            self._ready.register(each, selectors.EVENT_READ)
        while self._is_asked or self._children:
            events = self._ready.select(None if self._children else IDLE_SECONDS)
            if not events and not self._children:
                return
            for key, _ in events:
                if key.data is not None:
                    self._told(key.data)
            if any(key.fileobj is self._wake for key, _ in events):
                self._wake.recv(4096)
                self._reap()
            if any(key.fileobj is self._requests for key, _ in events):
                self._fork()

    def _told(self, process: int) -> None:
        """Do what the one who waits for a process says of it."""
        control = self._children[process]
        told = received(control, len(KILL))
        if told == STOP_MEMORY:
            with suppress(OSError):
                confine.stop_memory(process)
            return
        if not told:  # it has closed its end, and would be ready for ever
            self._ready.unregister(control)
        os.kill(process, signal.SIGKILL)  # it is not reaped yet, so the number is still its own

    def _reap(self) -> None:
        for process in list(self._children):
            reaped, status = os.waitpid(process, os.WNOHANG)
            if reaped:
                control = self._children.pop(process)
                with suppress(KeyError):
                    self._ready.unregister(control)
                with suppress(OSError):
                    control.send(STATUS.pack(status), socket.MSG_NOSIGNAL)
                control.close()

    def _fork(self) -> None:
        """Fork a process for the next request, if there is one."""
        told, files, flags, _ = socket.recv_fds(self._requests, PIECE, _MOST_FILES)
        if not told:
            self._is_asked = False
            self._ready.unregister(self._requests)
            return
        if flags & socket.MSG_CTRUNC:  # it can't open so many files
            for each in files:
                os.close(each)
            return
        control, *given = files
        server = os.getpid()
        try:
            process = os.fork()
        except OSError:  # the closed channels tell it
            process = None
        if process == 0:
            numbers = struct.unpack(f"{len(given) - 2}i", told[len(ASKED) :])
            _answered(server, [control, *self._own()], given, numbers, self._answer)
        for each in given:
            os.close(each)
        channel = socket.socket(fileno=control)
        if process is None:
            channel.close()
            return
        self._children[process] = channel
        self._ready.register(channel, selectors.EVENT_READ, process)
        with suppress(OSError):
            channel.send(FORKED, socket.MSG_NOSIGNAL)

    def _own(self) -> list[int]:
        """Return the server's own files, which no process that it forks may reach."""
        channels = (self._requests, self._wake, self._woken, *self._children.values())
        return [each.fileno() for each in channels]


def _answered(
    server: int,
    closed: Sequence[int],
    given: Sequence[int],
    numbers: Sequence[int],
    answer: Answer,
) -> NoReturn:
    """Answer one request in a process that was forked for it, and end.

    Parameters
    ----------
    server : int
        The process that forked this one.
    closed : sequence of int
        Files to be closed.
    given : sequence of int
        The channel on which it is asked and answers, the working directory, and more files.
    numbers : sequence of int
        The numbers that those files are to have.
    answer : callable
    """
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        confine.end_with(server)
        for each in closed:
            os.close(each)
        # First all of them to numbers that nothing has.
        free = max(*given, *numbers) + 1
        moved = [os.dup2(each, free + at, False) for at, each in enumerate(given)]
        for each in given:
            os.close(each)
        number, folder, *files = moved
        for file, wanted in zip(files, numbers, strict=True):
            os.dup2(file, wanted)
            os.close(file)
        os.fchdir(folder)
        os.close(folder)
        with socket.socket(fileno=number) as channel:
            asked = BytesIO(b"".join(iter(lambda: channel.recv(PIECE), b"")))
            environment = pickle.load(asked)
            os.environb.clear()
            os.environb.update(environment)
            channel.sendall(answer(asked.read()))
        code = 0
    finally:
        os._exit(code)
