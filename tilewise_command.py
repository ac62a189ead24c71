"""The program ``tilewise``.

It stands beside the package, so that Ctrl-C ends it with one line from its first moment on: to
import the package takes a quarter of a second.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any

INTERRUPTED = 130


def _end(*_: Any) -> None:
    """End the process at once: what is being imported has nothing to put in order."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"tilewise: interrupted\n")
    os._exit(INTERRUPTED)


def end_at_once() -> bool:
    """End the process with one line at Ctrl-C, while the package is imported.

    Returns
    -------
    bool
        Whether it does; not where Ctrl-C is ignored, as in the background.
    """
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end):
        signal.signal(signal.SIGINT, _end)
        return True
    return False


def main() -> int:
    """Carry out the process's command line.

    Returns
    -------
    int
        The exit code, as :func:`tilewise.cli.main.main` has it.
    """
    is_ended = end_at_once()
    from tilewise.cli.main import main as command

    if is_ended:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = command()
    if code == INTERRUPTED:  # Python would wait for threads that still compile
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
