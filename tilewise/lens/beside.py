"""Two watched kernels on one page, side by side at the same share of their work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewise.lens.paged import Paged
from tilewise.lens.player import page_of_two

if TYPE_CHECKING:
    from tilewise.lens.watch import Watch


@dataclass(frozen=True)
class Beside(Paged):
    """Two recorded runs, side by side.

    Attributes
    ----------
    one, other : Watch
    page : str
        The whole page, which needs no network and no server.
    """

    one: Watch
    other: Watch

    @classmethod
    def of(cls, one: Watch, other: Watch) -> Beside:
        """Return two runs on one page; see :meth:`tilewise.lens.watch.Watch.beside`.

        Raises
        ------
        TypeError
            If the other is not a watched run.
        """
        if not hasattr(other, "trace"):
            raise TypeError(
                f"{other!r} can't be shown beside a watched run: that takes another one, as "
                "tilewise.watch and Kernel.watch return it"
            )
        told = [_told(each) for each in (one, other)]
        return cls(page_of_two(one.trace.to_dict(), other.trace.to_dict(), told), one, other)

    @property
    def correct(self) -> bool:
        """Whether neither of the two products is known to be wrong."""
        return self.one.correct and self.other.correct

    def __repr__(self) -> str:
        names = " beside ".join(each.trace.to_dict()["kernel"] for each in (self.one, self.other))
        size = f"{len(self.page.encode()):,} bytes"
        return f"<watch {names}: {size}; .save(path) writes the page>"


def _told(watched: Watch) -> str:
    """Return how a run ended: at a fault, or with a product that is right or wrong."""
    if watched.fault is not None:
        found = watched.fault.findings[0]
        where = f" at line {found.line}" if found.line else ""
        return f"FAULT: {found.kind}{where}; it stops there"
    return "" if watched.verdict is None else "; ".join(watched.verdict.lines())
