"""What an arithmetic instruction means: operand types and a function over lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.errors import UnsupportedInstructionError

DTYPES: dict[str, Any] = {
    **{f"u{width}": np.dtype(f"u{width // 8}") for width in (8, 16, 32, 64)},
    **{f"s{width}": np.dtype(f"i{width // 8}") for width in (8, 16, 32, 64)},
    **{f"b{width}": np.dtype(f"u{width // 8}") for width in (8, 16, 32, 64)},
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "f16x2": np.dtype(np.uint32),
    "bf16x2": np.dtype(np.uint32),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "pred": np.dtype(np.bool_),
}
"""The NumPy dtype in which a value of each PTX type is held; bf16 and pairs are held as bits."""


@dataclass(frozen=True)
class Semantics:
    """One arithmetic instruction, over the lanes of a batch of threads.

    Parameters
    ----------
    inputs, outputs : tuple of str
        PTX types of the source and destination operands.
    function : callable
        Arrays of shape (lanes,) or NumPy scalars in, the same out; a tuple where there is more
        than one result. Pure.
    flops : int
        Floating-point operations of one thread; a fused multiply-add is two.
    carry_in : bool
        The function takes the carry (uint32, 0 or 1) as a last argument.
    carry_out : bool
        The function returns the carry as a last result more.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: Callable[..., Any]
    flops: int = 0
    carry_in: bool = False
    carry_out: bool = False


class Words:
    """The modifiers of one instruction, taken one by one; what is left over is unknown."""

    def __init__(self, opcode: str, modifiers: tuple[str, ...]) -> None:
        self.opcode = opcode
        self.modifiers = modifiers
        self._left = list(modifiers)

    def flag(self, word: str) -> bool:
        """Whether ``word`` is there; takes it."""
        if word in self._left:
            self._left.remove(word)
            return True
        return False

    def one_of(self, words: tuple[str, ...], default: str = "") -> str:
        """The first of ``words`` that is there, or the default; takes it."""
        for word in self._left:
            if word in words:
                self._left.remove(word)
                return word
        return default

    def type(self, *allowed: str) -> str:
        """Takes the first type that is left; it must be one of ``allowed``."""
        word = self.one_of(tuple(DTYPES))
        if word not in allowed:
            raise self.unknown()
        return word

    def check(self, ok: bool) -> None:
        """Raises if this combination is not one of PTX's."""
        if not ok:
            raise self.unknown()

    def done(self, ok: bool = True) -> None:
        """Raises if a modifier is left over, too."""
        self.check(ok and not self._left)

    def unknown(self) -> UnsupportedInstructionError:
        """The error that names this instruction."""
        name = ".".join((self.opcode, *self.modifiers))
        return UnsupportedInstructionError(f"the emulator does not know the instruction {name}")


Builder = Callable[[Words], Semantics]
