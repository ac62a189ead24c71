"""Whether an array has a mask, without importing what masks are made by."""

from __future__ import annotations

import sys


def is_masked(x: object) -> bool:
    """Return whether ``x`` is a masked array of NumPy.

    ``numpy.ma`` takes long to import, and before it is, there is no masked array.
    """
    return isinstance(x, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))
