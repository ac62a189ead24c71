"""The programs that were launched last, whose PTX a further launch does not parse again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property

from tilewise.compiler import Compiled
from tilewise.devices.emulator.counting.rules import Rules
from tilewise.devices.emulator.ptx.parser import parse
from tilewise.devices.emulator.ptx.program import Program

_MOST = 128


class Known:
    """A program, and the rules for its accesses, which the first launch that counts finds."""

    def __init__(self, compiled: Compiled) -> None:
        self.program = Program(parse(compiled.ptx), compiled.symbol)
        self._compiled = compiled

    @cached_property
    def rules(self) -> Rules:
        return Rules.of(self.program, self._compiled)


_known: OrderedDict[tuple[str, str, bytes], Known] = OrderedDict()
_lock = threading.Lock()


def of(compiled: Compiled) -> Known:
    """Return a kernel's program, parsed now or for an earlier launch of any emulator."""
    # Different assemblers make different machine code of one PTX.
    key = (compiled.ptx, compiled.symbol, compiled.cubin)
    with _lock:
        if key not in _known:
            _known[key] = Known(compiled)
            if len(_known) > _MOST:
                _known.popitem(last=False)
        _known.move_to_end(key)
        return _known[key]
