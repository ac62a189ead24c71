"""The specification of a launch whose counters are compared with hardware's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewise.kernel import SOURCES

KERNELS = SOURCES / "counted"
LANES = 32


@dataclass(frozen=True)
class Spec:
    """The specification of a case, from which it can be made again.

    Attributes
    ----------
    kernel : str
        The name of a rung, or of a file in tilewise/kernels/counted.
    dtype : str
    shape : tuple of int
        The extents: m, n and k of a rung; rows and columns of a transpose and a stencil; the
        elements that a copy writes and a reduction reads; values and bins of a histogram. For the
        kernels of one instruction see :mod:`tilewise.lens.instruction_cases`.
    leading : tuple of int
        The elements from one row to the next, of each matrix in the order of the parameters; for a
        copy, from one element that it reads to the next.
    tile : int or None
        The tile of a rung that has tiles.
    alpha, beta : float
        The factors of a rung.
    seed : int
    pattern : str
        The name of the addresses or the layout, for a kernel of one instruction.
    """

    kernel: str
    dtype: str
    shape: tuple[int, ...]
    leading: tuple[int, ...] = ()
    tile: int | None = None
    alpha: float = 1.0
    beta: float = 0.0
    seed: int = 0
    pattern: str = ""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Spec:
        """Return the specification from JSON, which has lists in place of tuples."""
        lists = {name: tuple(value) for name, value in record.items() if isinstance(value, list)}
        return cls(**{**record, **lists})

    @property
    def name(self) -> str:
        """A name that distinguishes the case from all others."""
        parts = [self.kernel, self.dtype, "x".join(map(str, self.shape))]
        parts += ["ld" + ",".join(map(str, self.leading))] if self.leading else []
        parts += [f"tile{self.tile}"] if self.tile else []
        parts += [f"beta{self.beta:g}"] if self.beta else []
        parts += [self.pattern] if self.pattern else []
        return "-".join(parts)
