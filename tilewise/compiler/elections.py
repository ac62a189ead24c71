"""Find the atomics of the machine code that one lane of a warp executes for all of them.

Where the lanes of a warp add to one place in global memory, ptxas lets one lane add the sum of all.
It has two forms. In the first, the highest of the active lanes is elected::

    VOTEU.ANY UR6, UPT, PT ;  UFLO.U32 UR7, UR6 ;  S2R R0, SR_LANEID ;
    ISETP.EQ.U32.AND P0, PT, R0, UR7, PT ;  @P0 REDG.E.ADD ...

In the second, the first or the last lane adds for a warp whose lanes are all active, and in any
other warp each lane adds for itself::

    VOTE.ANY R0, PT, PT ;  ISETP.EQ.U32.AND P0, PT, R0, -0x1, PT ;  @!P0 ATOMG.E.ADD ...
    ISETP.EQ.U32.AND P1, PT, R6, 0x1f, PT ;  @P1 ATOMG.E.ADD ...

NVIDIA documents neither; they were read from what NVRTC and nvJitLink 13 make for compute
capability 7.5 to 12.0 (``tests/devices/emulator/test_elected.py``).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

EACH = ""
"""The value for an atomic that each lane executes."""
ONE = "one"
"""The value for an atomic that one of the lanes that reach it executes for all of them."""
WHOLE = "whole"
"""The value for an atomic that one lane executes in a warp whose lanes all reach it; in other warps
each lane does.
"""
REST = "rest"
"""The value for an atomic that each lane of a warp that is not whole executes: the counterpart of
``WHOLE``.
"""
UNKNOWN = "unknown"
"""The value for an atomic whose line has a vote, if it is not known which lanes execute it."""

_RESULT = re.compile(r"(?P<kind>U?[RP])(?P<number>\d+|Z|T)")
_WIDE = frozenset(("64", "WIDE"))
_COPIES = frozenset(("MOV", "UMOV", "R2UR", "S2UR"))
_LANE, _VOTE, _LEADER, _PLACE = "lane", "vote", "leader", "place"
_NOT = "not "


class Elections:
    """The lanes of a warp that each guard selects, followed through a kernel's instructions."""

    def __init__(self) -> None:
        self._meaning: dict[str, str] = {}
        self._guard = ""
        self._voted: set[int] = set()

    def label(self) -> None:
        """Note that a branch may lead here."""
        self._guard = ""

    def lanes(self, guard: str) -> str:
        """Return which lanes execute an instruction, by its guard, such as ``"@!P0"``.

        The result is preliminary; :meth:`settled` decides when all atomics of the kernel are known.
        """
        meaning = self._of_guard(guard) if guard else self._guard
        known = {ONE: ONE, _PLACE: _PLACE, _NOT + WHOLE: REST}.get(meaning, EACH)
        return UNKNOWN if guard and not meaning else known

    def settled(self, atomics: Sequence[tuple[int, Hashable, str]]) -> list[str]:
        """Decide for all atomics of a kernel, in their order, which lanes execute them.

        Parameters
        ----------
        atomics : sequence of (int, hashable, str)
            The line of each atomic, its operation, and the result of :meth:`lanes`.

        Returns
        -------
        list of str
            ``EACH``, ``ONE``, ``WHOLE``, ``REST`` or ``UNKNOWN``.
        """
        found = [lanes for _, _, lanes in atomics]
        rest: dict[tuple[int, Hashable], int] = {}
        for at, (line, operation, lanes) in enumerate(atomics):
            if lanes == REST:
                rest[line, operation] = at
            elif lanes == _PLACE:
                found[at] = EACH if rest.pop((line, operation), None) is None else WHOLE
        for at in rest.values():
            found[at] = UNKNOWN
        elected = {line for (line, _, _), lanes in zip(atomics, found, strict=True)
                   if lanes in (ONE, WHOLE)}  # fmt: skip
        for at, (line, _, lanes) in enumerate(atomics):
            if line not in self._voted and lanes == UNKNOWN:
                found[at] = EACH
            elif line in self._voted - elected and found[at] == EACH:
                found[at] = UNKNOWN
        return found

    def step(self, line: int, guard: str, opcode: str, operands: Sequence[str]) -> None:
        """Take note of one instruction: ``opcode`` with its modifiers, as ``"VOTE.ANY"``."""
        name, *modifiers = opcode.split(".")
        if name in ("BRA", "EXIT") and guard:
            # The lanes that go on have not taken the branch.
            self._guard = _negated(self._of_guard(guard)) or self._guard
            return
        if name in ("CALL", "RET", "BRX", "R2P"):
            self._meaning.clear()
            return
        meaning = self._meant(name, modifiers, operands)
        if name in ("VOTE", "VOTEU") and meaning:
            self._voted.add(line)
        for written in _written(name, modifiers, operands):
            self._meaning.pop(written, None)
        if meaning and not guard and operands[0] not in ("PT", "UPT", "RZ", "URZ"):
            self._meaning[operands[0]] = meaning

    def _of_guard(self, guard: str) -> str:
        found = self._meaning.get(guard.lstrip("@!"), "")
        return _negated(found) if "!" in guard else found

    def _meant(self, name: str, modifiers: Sequence[str], operands: Sequence[str]) -> str:
        """Return what an instruction's result says about the lanes; empty if that is not known."""
        sources = [self._meaning.get(each.removesuffix(".reuse"), "") for each in operands[1:]]
        if name == "S2R" and operands[1:] == ["SR_LANEID"]:
            return _LANE
        if name in ("VOTE", "VOTEU"):
            return _VOTE if set(operands[1:]) <= {"PT", "UPT"} else ""
        if name in ("FLO", "UFLO"):
            return _LEADER if sources[0] == _VOTE else ""
        if name in _COPIES and len(operands) == 2:
            return sources[0]
        if name == "IMAD" and set(operands[1:3]) <= {"RZ", "URZ"} and len(operands) == 4:
            return sources[2]
        if name in ("ISETP", "UISETP") and modifiers[0] in ("EQ", "NE") and len(operands) == 5:
            found = _compared(sources[1:3], operands[2:4])
            return _negated(found) if modifiers[0] == "NE" else found
        return ""


def _compared(sources: Sequence[str], operands: Sequence[str]) -> str:
    """Return what a comparison of two values for equality says about the lanes."""
    if sorted(sources) == [_LANE, _LEADER]:
        return ONE
    # The operand beside the one of known meaning, which may be a number; RZ is zero.
    number = operands[0] if sources[1] else operands[1]
    is_number = number in ("RZ", "URZ") or re.fullmatch(r"-?0x[0-9a-f]+|-?\d+", number)
    if _VOTE in sources and number in ("-0x1", "-1", "0xffffffff"):
        return WHOLE
    return _PLACE if _LANE in sources and is_number else ""


def _negated(meaning: str) -> str:
    if not meaning:
        return ""
    return meaning.removeprefix(_NOT) if meaning.startswith(_NOT) else _NOT + meaning


def _written(name: str, modifiers: Sequence[str], operands: Sequence[str]) -> list[str]:
    """Return the registers and predicates that an instruction writes: its first operands.

    The list may contain more than it writes. What was known about a register in the list is
    forgotten.
    """
    if name.endswith(("SETP", "PLOP3")):
        return list(operands[:2])
    found: list[str] = []
    has_register = False
    for operand in operands:
        match = _RESULT.fullmatch(operand)
        if match is None or (has_register and match["kind"].endswith("R")):
            break
        found.append(operand)
        if match["kind"].endswith("R"):
            has_register = True
            count = 4 if "128" in modifiers else 2 if _WIDE.intersection(modifiers) else 1
            if match["number"].isdigit():
                first = int(match["number"])
                found += (f"{match['kind']}{first + more}" for more in range(1, count))
    return found
