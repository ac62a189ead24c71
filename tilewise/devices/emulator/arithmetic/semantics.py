"""The semantics of an arithmetic instruction: operand types and a function over lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewise.devices.emulator.ptx.modifiers import Words


@dataclass(frozen=True)
class Semantics:
    """The semantics of one arithmetic instruction, over the lanes of a batch of threads.

    Parameters
    ----------
    inputs, outputs : tuple of str
        The PTX types of the source and destination operands.
    function : callable
        A pure function from arrays of shape (lanes,) or NumPy scalars to the same; it returns a
        tuple if there are several results.
    flops : int
        The floating-point operations of one thread; a fused multiply-add is two.
    carry_in : bool
        Whether the function takes the carry (uint32, 0 or 1) as a further argument.
    carry_out : bool
        Whether the function returns the carry as a further result.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    function: Callable[..., Any]
    flops: int = 0
    carry_in: bool = False
    carry_out: bool = False


Builder = Callable[[Words], Semantics]
