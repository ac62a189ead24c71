"""The programs that were launched last, so that a launch again does not read their PTX again."""

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
    """A program, and how its accesses are counted, which is found where a launch counts."""

    def __init__(self, compiled: Compiled) -> None:
        self.program = Program(parse(compiled.ptx), compiled.symbol)
        self._compiled = compiled

    @cached_property
    def rules(self) -> Rules:
        return Rules.of(self.program, self._compiled)


_known: OrderedDict[tuple[str, str, bytes], Known] = OrderedDict()
_lock = threading.Lock()


def of(compiled: Compiled) -> Known:
    """Return a kernel's program, which any emulator may have launched before."""
    # Different assemblers make different machine code of one PTX.
    key = (compiled.ptx, compiled.symbol, compiled.cubin)
    with _lock:
        if key not in _known:
            _known[key] = Known(compiled)
            if len(_known) > _MOST:
                _known.popitem(last=False)
        _known.move_to_end(key)
        return _known[key]
