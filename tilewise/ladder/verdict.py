"""The verdict on a kernel's C: whether it is correct, and what is wrong with it, in sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tilewise.ladder.untouched import Untouched, untouched
from tilewise.numbers import Check, check

_FIELDS = (
    "correct", "max_error", "bound", "worst", "nan", "infinite", "first_not_finite",
    "inputs_not_finite", "unwritten",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """The facts known about a kernel's result.

    Attributes
    ----------
    check : Check
        The check of the result against float64.
    untouched : Untouched or None
        The elements of C that the kernel did not change; None if none is known.
    """

    check: Check
    untouched: Untouched | None = None

    @property
    def correct(self) -> bool:
        """Whether the result is correct, and no element of it is known to be unwritten."""
        is_written = self.untouched is None or not self.untouched.is_certain
        return bool(self.check.correct) and is_written

    @property
    def details(self) -> str:
        """The words that follow "right" or "WRONG" in a sentence."""
        by_chance = ", right by chance" if self.check.correct and not self.correct else ""
        return f"{by_chance} {self.check.details}"

    @property
    def remarks(self) -> dict[str, str]:
        """Further remarks by their subject: ``"not finite"``, ``"unwritten"``."""
        left = "" if self.untouched is None else str(self.untouched)
        found = {"not finite": self.check.remark, "unwritten": left}
        return {name: remark for name, remark in found.items() if remark}

    def lines(self) -> list[str]:
        """Return the whole verdict, a sentence in each line."""
        return [f"{'right' if self.correct else 'WRONG'}{self.details}", *self.remarks.values()]


def judge(
    there: Any,
    c: npt.NDArray[Any],
    a: npt.NDArray[Any],
    b: npt.NDArray[Any],
    before: npt.NDArray[Any] | None,
    alpha: float,
    beta: float,
) -> Verdict:
    """Check the result of alpha A B + beta C, and look for elements that nothing wrote.

    Parameters
    ----------
    there : DeviceArray
        C on the device. The emulator's arrays know which elements were written.
    c : ndarray, (m, n)
        C on the host.
    a, b : ndarray, (m, k) and (k, n)
    before : ndarray, (m, n), or None
        C before the launch; None if there was none.
    alpha, beta : float
    """
    found = check(c, a, b, before, alpha, beta)
    return Verdict(found, untouched(there, before, c, found.correct))


def as_dict(verdict: Verdict | None) -> dict[str, Any]:
    """Return plain data for JSON; None for infinity, which JSON lacks, and for unknown values."""
    if verdict is None:
        return dict.fromkeys(_FIELDS)
    x, left = verdict.check, verdict.untouched
    values = (
        verdict.correct,
        x.max_error if math.isfinite(x.max_error) else None,
        x.bound if math.isfinite(x.bound) else None,
        None if x.worst is None else list(x.worst),
        x.nan,
        x.infinite,
        None if x.first is None else list(x.first),
        x.inputs,
        None if left is None else left.to_dict(),
    )
    return dict(zip(_FIELDS, values, strict=True))
