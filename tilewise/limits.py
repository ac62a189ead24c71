"""The limits of a compilation and of a launch, beyond which they are stopped."""

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
    """The most that a compilation, and each launch, may take. None means no limit.

    Attributes
    ----------
    seconds : float or None
        The wall time of a compilation, and again of each launch; at most a million seconds.
    instructions : int or None
        The instructions that all warps of a launch together may execute on the emulator. The same
        kernel reaches this limit at the same place on every machine.
    memory : int or None
        The bytes that the compiler may take beyond those that its process held before, which is
        limited only on Linux; or those that the emulator may take for a launch, without the
        launch's arrays.
    output : int or None
        The bytes that the kernel may print.

    Raises
    ------
    TypeError
        If a limit is not a number, or a limit other than ``seconds`` is not a whole number.
    ValueError
        If a limit is not above 0, or is too high to count with.

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


NO_LIMITS = Limits(seconds=None, instructions=None, memory=None, output=None)
