"""The elements of C that a kernel did not change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.shown import element, plural


@dataclass(frozen=True)
class Untouched:
    """The elements of C that a kernel did not change.

    Attributes
    ----------
    count : int
        Their number, at least 1.
    first : (int, int)
        The row and the column of the first one, in row-major order.
    is_certain : bool
        Whether it is known that nothing wrote them. If not, they have their previous values, and
        the result is wrong.
    is_all : bool
        Whether these are all elements of C.
    elements : ndarray of bool, (m, n)
        Which ones.
    """

    count: int
    first: tuple[int, int]
    is_certain: bool
    is_all: bool
    elements: npt.NDArray[np.bool_] = field(repr=False, compare=False)

    def __str__(self) -> str:
        which = f"{plural(self.count, 'element')} of C"
        is_one = self.count == 1
        if self.is_certain:
            if self.is_all:
                return "no element of C was ever written"
            said = f"{which} {'was' if is_one else 'were'} never written"
        else:
            said = f"{which} {'is as it was' if is_one else 'are as they were'} before the launch"
        of = "it is" if is_one else "the first of them"
        return f"{said}, {of} {element('C', self.first)}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"count": self.count, "first": list(self.first), "is_certain": self.is_certain}


def untouched(
    there: Any, before: npt.NDArray[Any] | None, after: npt.NDArray[Any], is_right: bool
) -> Untouched | None:
    """Return the elements of C that a launch did not change; None if none is known.

    Parameters
    ----------
    there : DeviceArray
        C on the device. The emulator's arrays know which elements were written.
    before : ndarray, (m, n), or None
        C before the launch; None if there was none.
    after : ndarray, (m, n)
    is_right : bool
        Whether ``after`` is correct; then nothing follows from equal values.
    """
    if before is None:
        # Only the emulator's arrays have this method.
        find = getattr(there, "unwritten_elements", None)
        left = None if find is None else find()
    else:
        bits = f"u{after.itemsize}"
        equal = np.ascontiguousarray(before).view(bits) == np.ascontiguousarray(after).view(bits)
        left = None if is_right else equal
    if left is None or not left.any():
        return None
    i, j = np.unravel_index(int(np.argmax(left)), left.shape)
    return Untouched(int(left.sum()), (int(i), int(j)), before is None, bool(left.all()), left)
