"""The default for whether a row of a product has the same bits in any batch."""

from __future__ import annotations

from tilewise.environment import is_on

VARIABLE = "TILEWISE_INVARIANT"


class Default:
    """What holds where a call does not say; None before the first product and the first setting."""

    is_on: bool | None = None


def set_invariant(on: bool) -> None:
    """Set whether :func:`tilewise.matmul` is ``invariant`` if a call does not say.

    The setting holds for the process. It begins as the environment variable ``TILEWISE_INVARIANT``
    says, ``1`` or ``0``, which the first product reads; without that variable it is off.

    Parameters
    ----------
    on : bool

    Raises
    ------
    TypeError
        If ``on`` is not a bool.
    """
    Default.is_on = checked(on)


def is_invariant(asked: bool | None) -> bool:
    """Return whether a call is to be invariant: as it says, or by the default for None.

    Raises
    ------
    TypeError
        If ``asked`` is neither True, False nor None.
    ValueError
        If the environment variable says the default, and is neither on nor off.
    """
    if asked is not None:
        return checked(asked)
    if Default.is_on is None:
        Default.is_on = is_on(VARIABLE, default=False)
    return Default.is_on


def checked(on: object) -> bool:
    """Return ``on``, which must be a bool.

    Raises
    ------
    TypeError
        If it is not a bool.
    """
    if not isinstance(on, bool):
        raise TypeError(f"invariant is {on!r}; it takes True or False")
    return on
