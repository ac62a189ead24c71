"""Read an instruction's modifiers, the words behind the dots after its opcode (PTX ISA 4.3)."""

from __future__ import annotations

from tilewise.devices.emulator.ptx.types import DTYPES
from tilewise.errors import UnsupportedInstructionError


class Words:
    """The modifiers of one instruction, taken one by one; any that are left over are unknown."""

    def __init__(self, opcode: str, modifiers: tuple[str, ...]) -> None:
        self.opcode = opcode
        self.modifiers = modifiers
        self._left = list(modifiers)

    def flag(self, word: str) -> bool:
        """Return whether ``word`` is there, and take it."""
        if word in self._left:
            self._left.remove(word)
            return True
        return False

    def one_of(self, words: tuple[str, ...], default: str = "") -> str:
        """Return the first of ``words`` that is there, or the default; take it."""
        for word in self._left:
            if word in words:
                self._left.remove(word)
                return word
        return default

    def type(self, *allowed: str) -> str:
        """Take the first type that is left; it must be one of ``allowed``."""
        word = self.one_of(tuple(DTYPES))
        if word not in allowed:
            raise self.unknown()
        return word

    def check(self, ok: bool) -> None:
        """Raise an error if this combination is not one of PTX's."""
        if not ok:
            raise self.unknown()

    def done(self, ok: bool = True) -> None:
        """Raise an error too if a modifier is left over."""
        self.check(ok and not self._left)

    def unknown(self) -> UnsupportedInstructionError:
        """Return the error that names this instruction."""
        name = ".".join((self.opcode, *self.modifiers))
        return UnsupportedInstructionError(f"the emulator does not know the instruction {name}")
