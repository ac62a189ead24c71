"""Ctrl-C ends a command at once, also in the midst of a long call of NumPy or of the compiler."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

GRACE = 0.5  # seconds that the command has to end by itself


@contextmanager
def ended_at_once(code: int) -> Iterator[None]:
    """End the process with ``code`` where it has not ended by itself soon after Ctrl-C.

    Python raises KeyboardInterrupt when the call that it is in returns, and drawing 2**31 numbers
    takes a minute. The signal itself is noticed at once: it writes a byte that a thread waits for
    (``signal.set_wakeup_fd``), and such calls leave other threads running.

    Parameters
    ----------
    code : int
        Of the process, where it is ended.
    """
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    is_over = threading.Event()

    def wait() -> None:
        while number := reader.recv(1):
            if number[0] == signal.SIGINT and not is_over.wait(GRACE):
                _end(code)

    thread = threading.Thread(target=wait, name="waits for Ctrl-C", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        signal.set_wakeup_fd(before)
        writer.close()
        thread.join()
        reader.close()


def _end(code: int) -> None:
    """Say so, and end the process without waiting for what it is in."""
    # A bar of progress hides the terminal's cursor while it is drawn.
    shown = "\r\x1b[2K\x1b[?25h" if sys.stderr.isatty() else ""
    os.write(2, f"{shown}tilewise: interrupted\n".encode())
    os._exit(code)
