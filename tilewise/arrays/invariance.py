"""Whether a row of a product has the same bits in any batch, where the caller does not say."""

from __future__ import annotations

import os

VARIABLE = "TILEWISE_INVARIANT"


class _Default:
    is_on = os.environ.get(VARIABLE, "") not in ("", "0")


def set_invariant(on: bool) -> None:
    """Set whether :func:`tilewise.matmul` is ``invariant`` where a call does not say.

    It holds for the process. At its beginning it is what ``TILEWISE_INVARIANT`` says: ``1`` or
    ``0``, by default 0.

    Parameters
    ----------
    on : bool

    Raises
    ------
    TypeError
        If it is no bool.
    """
    _Default.is_on = checked(on)


def is_invariant(asked: bool | None) -> bool:
    """Return whether a call is to be invariant.

    Raises
    ------
    TypeError
        If it says neither True nor False, and not None.
    """
    return _Default.is_on if asked is None else checked(asked)


def checked(on: object) -> bool:
    """Return a bool.

    Raises
    ------
    TypeError
        If it is none.
    """
    if not isinstance(on, bool):
        raise TypeError(f"invariant is {on!r}; it takes True or False")
    return on
