"""Environment variables that turn something on or off."""

from __future__ import annotations

import os

ON, OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def is_on(variable: str, *, default: bool) -> bool:
    """Return whether an environment variable turns something on.

    Its values are those of :data:`ON` and :data:`OFF`, in upper or lower case.

    Parameters
    ----------
    variable : str
        Its name.
    default : bool
        What holds if it is not set, or empty.

    Raises
    ------
    ValueError
        If it has another value.
    """
    given = os.environ.get(variable, "").strip()
    value = given.lower()
    if value in ON:
        return True
    if value in OFF:
        return False
    if value:
        takes = f"{', '.join(ON)} for on, and {', '.join(OFF)} for off"
        raise ValueError(f"the environment variable {variable} is {given!r}; it takes {takes}")
    return default
