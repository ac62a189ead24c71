"""Shorten the tracebacks of errors in kernels by the frames of tilewise.

A user then reads their own call, and the message.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from tilewise.environment import is_on
from tilewise.errors import TilewiseError

VARIABLE = "TILEWISE_FULL_TRACEBACK"
"""The environment variable that shows all frames if it is on."""

_PACKAGE = str(Path(__file__).parent) + os.sep

P = ParamSpec("P")
R = TypeVar("R")


def front_door(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that users call: its :class:`TilewiseError` shows no frame of tilewise.

    Neither does Ctrl-C during the call. Other errors keep all frames, because they may be mistakes
    of tilewise itself.
    """

    @wraps(function)
    def door(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (TilewiseError, KeyboardInterrupt) as error:
            hide_frames(error)
            # A bare raise does not add this frame again.
            raise

    return door


def hide_frames(error: BaseException) -> None:
    """Remove the frames of tilewise from the traceback of an error, and from those of its causes.

    For Ctrl-C, the frames of what tilewise called are removed too. Where the variable is neither on
    nor off, all frames stay, and a note of the error says so.
    """
    try:
        if is_on(VARIABLE, default=False):
            return
    except ValueError as wrong:  # said beside the error itself, in whose place it must not stand
        if str(wrong) not in getattr(error, "__notes__", ()):  # of a front door within another
            error.add_note(str(wrong))
        return
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        each.__traceback__ = _others(each.__traceback__, isinstance(error, KeyboardInterrupt))
        each = each.__cause__ or each.__context__


def _others(found: TracebackType | None, ends: bool) -> TracebackType | None:
    """Return the entries of a traceback whose files are not in the package.

    With ``ends``, return only those before the first entry of the package.
    """
    kept = []
    while found is not None:
        if not found.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            kept.append(found)
        elif ends:
            break
        found = found.tb_next
    whole: TracebackType | None = None
    for each in reversed(kept):
        whole = TracebackType(whole, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return whole
