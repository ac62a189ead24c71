"""Let Ctrl-C end a command at once, even during a long call of NumPy or of the compiler."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from tilewise_command import end

GRACE = 0.5  # seconds that the command has to end by itself

Handler = Callable[[int, FrameType | None], object]


class Interruptible:
    """A handler of Ctrl-C, and a context: what runs in it is interrupted, once.

    In the body Ctrl-C raises KeyboardInterrupt, and the body ends with that, whatever it makes of
    it. Elsewhere Ctrl-C is for the handler of before, unless the body was interrupted: then the
    command ends already.

    Parameters
    ----------
    before : callable
        The handler of before.
    """

    def __init__(self, before: Handler) -> None:
        self._before = before
        self._may_raise = self._has_raised = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._may_raise:
            self._may_raise, self._has_raised = False, True
            raise KeyboardInterrupt
        if not self._has_raised:
            self._before(number, frame)

    def __enter__(self) -> None:
        self._may_raise = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._may_raise = False
        if self._has_raised and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from None  # a library took it for something else


@contextmanager
def ended_at_once() -> Iterator[Interruptible]:
    """End the process with one line if it has not ended by itself soon after Ctrl-C.

    Python raises KeyboardInterrupt when the current call returns, and drawing 2**31 numbers takes a
    minute. The signal itself is noticed at once: it writes a byte that a thread waits for
    (``signal.set_wakeup_fd``), and such calls let other threads run.

    Yields
    ------
    Interruptible
        The context of what may be interrupted.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if before not in (signal.default_int_handler, end) or not is_main or not callable(before):
        yield Interruptible(signal.default_int_handler)
        return
    interruptible = Interruptible(before)
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    is_over = threading.Event()

    def wait() -> None:
        while number := reader.recv(1):
            if number[0] == signal.SIGINT and not is_over.wait(GRACE):
                end()

    def unraisable(what: sys.UnraisableHookArgs) -> None:
        if isinstance(what.exc_value, KeyboardInterrupt):
            end()  # it was raised where nothing can handle it, as in a finaliser
        told(what)

    thread = threading.Thread(target=wait, name="waits for Ctrl-C", daemon=True)
    thread.start()
    told, sys.unraisablehook = sys.unraisablehook, unraisable
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, interruptible)
    try:
        yield interruptible
    finally:
        is_over.set()
        signal.signal(signal.SIGINT, before)
        signal.set_wakeup_fd(wakeup)
        sys.unraisablehook = told
        writer.close()
        thread.join()
        reader.close()
