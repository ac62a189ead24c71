"""The program ``tilewise``.

It stands beside the package, so that Ctrl-C ends it with one line from its first moment on: to
import the package takes a quarter of a second.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from contextlib import suppress

INTERRUPTED = 130
LINE = b"tilewise: interrupted\n"


def end(*_: object) -> None:
    """End the process at once, with one line: a handler of Ctrl-C."""
    # A bar of progress hides the terminal's cursor while it is drawn.
    shown = b"\r\x1b[2K\x1b[?25h" if sys.stderr is not None and sys.stderr.isatty() else b""
    with suppress(OSError):
        os.write(2, shown + LINE)
    os._exit(INTERRUPTED)


def end_at_once() -> None:
    """Have Ctrl-C end the process with one line, up to the moment when nothing is left to end.

    It does nothing where Ctrl-C is ignored, as in the background.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # What is registered first is called last. Python takes its handlers away after that, and
        # Ctrl-C while it frees what it holds would end the process by the signal.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGINT, end)


def open_streams() -> None:
    """Open what the process was started without of standard input, output and error: nowhere.

    Else a file that is opened later would be standard error for CUDA's libraries, and Python has
    None for a stream that is closed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))


def main() -> int:
    """Carry out the process's command line.

    Returns
    -------
    int
        The exit code, as :func:`tilewise.cli.main.main` has it.
    """
    end_at_once()
    open_streams()
    # The emulator makes some 100,000 objects for a launch and frees them behind it; to look for
    # garbage among them as often as Python does takes as long as the launch.
    gc.set_threshold(100_000, 10, 10)
    from tilewise.cli.main import main as command

    code = command()
    if code == INTERRUPTED:  # Python would wait for threads that still compile
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    from tilewise_command import main as program  # the package knows this module by that name

    sys.exit(program())
