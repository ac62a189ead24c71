"""What a compilation and a launch may take before they are stopped."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

KINDS = {"seconds": (int, float), "instructions": (int,), "memory": (int,), "output": (int,)}


@dataclass(frozen=True)
class Limits:
    """The most that a compilation, and each launch, may take. None is no limit.

    Attributes
    ----------
    seconds : float or None
        Of wall time: of a compilation, and of a launch, each.
    instructions : int or None
        That all the warps of a launch execute together on the emulator. The same kernel reaches
        it at the same place on every machine.
    memory : int or None
        Bytes that the compiler, or the emulator for a launch, takes beyond what the process held
        before; the arrays of the launch are not counted.
    output : int or None
        Bytes that the kernel prints.

    Raises
    ------
    TypeError
        If a limit is no number, or one of all but ``seconds`` is no whole one.
    ValueError
        If a limit is not above 0.

    Examples
    --------
    >>> import tilewise
    >>> tilewise.Limits(seconds=2).seconds, tilewise.Limits().output
    (2, 1048576)
    """

    seconds: float | None = 60.0
    instructions: int | None = None
    memory: int | None = 4 << 30
    output: int | None = 1 << 20

    def __post_init__(self) -> None:
        for each in fields(self):
            value, kinds = getattr(self, each.name), KINDS[each.name]
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, kinds):
                number = "a number" if float in kinds else "a whole number"
                raise TypeError(
                    f"{each.name} is {value!r}; it takes {number}, or None for no limit"
                )
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{each.name} is {value!r}; it must be above 0")
