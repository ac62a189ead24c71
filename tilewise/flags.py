"""Arguments that are True or False."""

from __future__ import annotations

import numpy as np

_KINDS = (bool, np.bool_, int, np.integer)


def check_flags(**flags: object) -> None:
    """Raise TypeError if one of the arguments, by their names, is neither True nor False.

    The integers 1 and 0 are taken for them. A string is not: each that is not empty is true in
    Python, BLAS's ``"N"`` included.
    """
    for name, flag in flags.items():
        if not isinstance(flag, _KINDS) or flag not in (0, 1):
            raise TypeError(f"{name} is {flag!r}; it takes True or False")
