"""Arguments that are True or False."""

from __future__ import annotations

import numpy as np

_BOOLEANS = (bool, np.bool_)


def check_flags(**flags: object) -> None:
    """Raise TypeError if one of the arguments, by their names, is neither True nor False.

    Any text is true in Python, BLAS's ``"N"`` and ``"no"`` too.
    """
    for name, flag in flags.items():
        if not isinstance(flag, _BOOLEANS):
            raise TypeError(f"{name} is {flag!r}; it takes True or False")
