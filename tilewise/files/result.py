"""The result of a product in files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tilewise.numbers import Check
from tilewise.shown import Part, Shown, duration, named, plural


@dataclass(frozen=True, repr=False)
class FileProduct(Shown):
    """The result of :func:`multiply_files`.

    Attributes
    ----------
    out : str
        The file of C.
    m, n, k : int
    dtype : str
        The dtype of A, B and C.
    device : str
        ``"gpu"`` or ``"host"``.
    block_m, block_n, block_k : int
        The rows and columns of a whole tile of C, and the depth of its pieces.
    tiles, pieces : int
        The number of tiles of C, and of pieces of k.
    resumed : int
        The number of tiles that an earlier run had finished.
    memory, budget : int
        The bytes that the pieces took together, and the most that they might have taken.
    bytes_read, bytes_written : int
        The bytes that this run read of A and B, and wrote of C.
    bytes_moved, bound : int
        The bytes that the whole plan reads and writes, and the fewest that any order can with this
        budget.
    seconds : float
        The seconds of this run.
    check : Check or None
        The check of a sample of C; None if none was asked for.
    notes : tuple of str
        Further remarks.
    """

    out: str
    m: int
    n: int
    k: int
    dtype: str
    device: str
    block_m: int
    block_n: int
    block_k: int
    tiles: int
    pieces: int
    resumed: int
    memory: int
    budget: int
    bytes_read: int
    bytes_written: int
    bytes_moved: int
    bound: int
    seconds: float
    check: Check | None
    notes: tuple[str, ...]

    @property
    def correct(self) -> bool:
        """Whether the sample that was checked is right; True where none was."""
        return self.check is None or self.check.correct

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"correct": self.correct, **asdict(self)}

    def _summary(self) -> str:
        return (
            f"{self.out}: {self.m:,} x {self.n:,}, {self.dtype}, {plural(self.tiles, 'tile')} in "
            f"{duration(self.seconds)}"
        )

    def _parts(self) -> list[Part]:
        checked = [] if self.check is None else [str(self.check)]
        return [self._summary(), *self.notes, *checked, named(self)]
