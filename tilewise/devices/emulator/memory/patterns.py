"""The shared-memory addresses of one instruction's lanes, checked and counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.threads.lanes import Index, Lanes

Addresses = npt.NDArray[np.int64]
REMEMBERED = 4
"""The number of patterns that are kept beside an instruction."""


@dataclass(eq=False)
class SharedPattern:
    """The shared-memory addresses of one instruction, all of them checked.

    Attributes
    ----------
    lanes : Lanes
        The lanes whose addresses are right.
    address : ndarray of int64, shape (lanes.count,)
        The addresses in the block's shared memory.
    gather : ndarray of intp, the same shape
        The element (or vector) indices in the batch's storage.
    shifted : dict
        The patterns that came again, each by the bytes that it is further on.
    """

    lanes: Lanes
    asked: Lanes
    asked_address: Addresses
    address: Addresses
    gather: Index
    chosen: Index | None
    requests: int
    wavefronts: int
    conflicts: int
    has_duplicates: bool
    verified: int = -1
    shifted: dict[int, SharedPattern] = field(default_factory=dict)

    @cached_property
    def reach(self) -> tuple[int, int]:
        """The lowest and the highest address."""
        return int(self.address.min()), int(self.address.max())

    @property
    def nbytes(self) -> int:
        """The bytes of its addresses, as they are kept."""
        return self.address.nbytes + self.gather.nbytes

    def shift(self, distance: int, width: int) -> SharedPattern:
        """Return the pattern of accesses that are ``distance`` bytes further on, a multiple of 4.

        Every word moves by the same number of words, and so of banks: the wavefronts are the same.
        """
        address = self.address + distance
        return SharedPattern(
            self.lanes, self.asked, address, address, self.gather + distance // width, None,
            self.requests, self.wavefronts, self.conflicts, self.has_duplicates,
        )  # fmt: skip

    def part(self, chosen: npt.NDArray[np.bool_]) -> SharedPattern:
        """Return the addresses of some of its lanes, which are counted with all of them."""
        lanes, address = self.lanes.where(chosen), self.address[chosen]
        return SharedPattern(
            lanes, lanes, address, address, self.gather[chosen], None, 0, 0, 0,
            self.has_duplicates,
        )  # fmt: skip
