"""The text of a source's file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST_BYTES = 16 << 20
"""The most bytes of a source, and of all headers together that one source includes."""


def read(file: Path, most: int = MOST_BYTES) -> str:
    """Return the text of a regular file, its lines ending in ``\\n``.

    Devices and pipes are refused. Files of the system whose size is 0, as in ``/proc``, read as
    empty.

    Raises
    ------
    FileNotFoundError
        If there is none, or it is a folder.
    OSError
        If it can't be read.
    ValueError
        If it is no regular file, no text, or larger than ``most`` bytes.
    """
    if stat.S_ISDIR(file.stat().st_mode):
        raise FileNotFoundError(f"{file} is a folder")
    # It may have become a pipe since then: opening it must not wait for a writer.
    number = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(number, "rb") as opened:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{file} is no regular file")
        if status.st_size > most:
            raise ValueError(f"{file} has {status.st_size:,} bytes; at most {most:,} are read")
        data = opened.read(status.st_size)
    try:
        text = data.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} can't be read: it is not UTF-8 text ({error})") from None
    if "\0" in text:
        raise ValueError(f"{file} has a NUL character in it")
    return text.replace("\r\n", "\n")
