"""What an arithmetic instruction means: operand types and a function over lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewise.devices.emulator.ptx.modifiers import Words


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


Builder = Callable[[Words], Semantics]
