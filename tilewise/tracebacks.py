"""Tracebacks of errors in kernels, without the frames of tilewise: what a user reads is their own
call, and the message."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from tilewise.errors import TilewiseError

VARIABLE = "TILEWISE_FULL_TRACEBACK"
"""The environment variable that, set to anything but ``0`` or nothing, shows all frames."""

_PACKAGE = str(Path(__file__).parent) + os.sep

P = ParamSpec("P")
R = TypeVar("R")


def front_door(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that users call: its :class:`TilewiseError` shows no frame of tilewise.

    Nor does Ctrl-C in it. Other errors keep all frames: they may be tilewise's own mistakes.
    """

    @wraps(function)
    def door(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (TilewiseError, KeyboardInterrupt) as error:
            hide_frames(error)
            # A bare raise does not add this frame anew.
            raise

    return door


def hide_frames(error: BaseException) -> None:
    """Take the frames of tilewise out of an error's traceback, and out of those of its causes.

    Of Ctrl-C, what tilewise called is taken out too.
    """
    if os.environ.get(VARIABLE, "0") not in ("", "0"):
        return
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        each.__traceback__ = _others(each.__traceback__, isinstance(error, KeyboardInterrupt))
        each = each.__cause__ or each.__context__


def _others(found: TracebackType | None, ends: bool) -> TracebackType | None:
    """A traceback's entries that are of other files than the package's; with ``ends``, only those
    before the first that is the package's."""
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
