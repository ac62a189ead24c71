"""What makes a launch whose counters are held against hardware's, and makes it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewise.kernel import SOURCES

KERNELS = SOURCES / "counted"
LANES = 32


@dataclass(frozen=True)
class Spec:
    """What makes a case, and makes it again.

    Attributes
    ----------
    kernel : str
        A rung's name, or that of a file of tilewise/kernels/counted.
    dtype : str
    shape : tuple of int
        Of a rung m, n and k; rows and columns of a transpose and a stencil; elements that a copy
        writes and a reduction reads; values and bins of a histogram. Of the kernels of one
        instruction, as :mod:`tilewise.lens.instruction_cases` has them.
    leading : tuple of int
        Elements from one row to the next, of each matrix in the order of the parameters; of a
        copy, from one element that it reads to the next.
    tile : int or None
        Of a rung that has tiles.
    alpha, beta : float
        Of a rung.
    seed : int
    pattern : str
        Of a kernel of one instruction: the addresses or the layout, by name.
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
        """From JSON, which has lists for tuples."""
        lists = {name: tuple(value) for name, value in record.items() if isinstance(value, list)}
        return cls(**{**record, **lists})

    @property
    def name(self) -> str:
        """What distinguishes the case from all others."""
        parts = [self.kernel, self.dtype, "x".join(map(str, self.shape))]
        parts += ["ld" + ",".join(map(str, self.leading))] if self.leading else []
        parts += [f"tile{self.tile}"] if self.tile else []
        parts += [f"beta{self.beta:g}"] if self.beta else []
        parts += [self.pattern] if self.pattern else []
        return "-".join(parts)
