"""What a compilation and a launch may take before they are stopped."""

from __future__ import annotations

from dataclasses import dataclass, fields

MOST: dict[str, float] = {
    "seconds": 1_000_000,  # 11 days; some systems can't wait for longer than 24
    "instructions": 1 << 62,
    "memory": 1 << 62,
    "output": 1 << 62,
}
"""The highest limits that the systems below can count with."""
KINDS = {"seconds": (int, float), "instructions": (int,), "memory": (int,), "output": (int,)}


@dataclass(frozen=True)
class Limits:
    """The most that a compilation, and each launch, may take. None is no limit.

    Attributes
    ----------
    seconds : float or None
        Wall time: so many for a compilation, and so many again for each launch. At most a million.
    instructions : int or None
        That all the warps of a launch execute together on the emulator. The same kernel reaches
        it at the same place on every machine.
    memory : int or None
        Bytes that the compiler takes beyond those that its process held before, on Linux alone; or
        the emulator for a launch, without the launch's arrays.
    output : int or None
        Bytes that the kernel prints.

    Raises
    ------
    TypeError
        If a limit is no number, or one of all but ``seconds`` is no whole one.
    ValueError
        If a limit is not above 0, or is higher than can be counted with.

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
            if not value > 0:
                raise ValueError(f"{each.name} is {value!r}; it must be above 0")
            if value > MOST[each.name]:
                shown = repr(value) if value < 1e30 else "more"
                raise ValueError(
                    f"{each.name} is {shown}; it must be at most {MOST[each.name]:,}, or None for "
                    "no limit"
                )
