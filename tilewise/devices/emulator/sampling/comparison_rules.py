"""Apply comparisons and selections to dependences, and to the region of alike blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.emulator.sampling.affine import (
    LOADED,
    RANGES,
    UNKNOWN,
    ZERO,
    Affine,
    Dependence,
    clipped,
    combined,
    difference,
    extremes,
    fits,
    picked,
)
from tilewise.devices.emulator.sampling.evaluation import UNTYPED, Evaluation, Rule
from tilewise.devices.emulator.sampling.regions import Moves
from tilewise.devices.emulator.threads.lanes import Lanes
from tilewise.devices.emulator.threads.op import Value

_RELATIONS: dict[str, Callable[[Any], Any]] = {
    "lt": lambda d: d < 0,
    "le": lambda d: d <= 0,
    "gt": lambda d: d > 0,
    "ge": lambda d: d >= 0,
    "eq": lambda d: d == 0,
    "ne": lambda d: d != 0,
}


class ComparisonRules(Evaluation):
    """The rules of ``setp``, ``selp``, ``min`` and ``max``."""

    def _min(self) -> Rule:
        return self._choice("le")

    def _max(self) -> Rule:
        return self._choice("ge")

    def _choice(self, relation: str) -> Rule:
        a, b = self.dependences
        reads = [self.value(place, self.type) for place in (0, 1)]

        def rule(lanes: Lanes) -> Dependence:
            one, other = a(), b()
            if one == ZERO and other == ZERO:
                return ZERO
            if isinstance(one, str) or isinstance(other, str):
                return LOADED
            found = self.exact(lanes)
            if found is not None or None in one or None in other:
                return found or combined([one, other])
            left, right = (read(lanes) for read in reads)
            return picked(one, other, self.compare(one, other, left, right, relation, self.type))

        return rule

    def _selp(self) -> Rule:
        a, b, p = self.dependences
        read = self.value(2, "pred")

        def rule(lanes: Lanes) -> Dependence:
            one, other, by = a(), b(), p()
            if isinstance(by, str) or LOADED in (one, other):
                return LOADED
            if by != ZERO:
                found = self.exact(lanes)
                if found is not None:
                    return found
                self.tracker.decide(self.op, by)
            return one if one == other else picked(one, other, np.asarray(read(lanes)))

        return rule

    def _setp(self) -> Rule | None:
        relation = self.modifiers[0]
        dependences = self.dependences
        type_ = UNTYPED.get(self.type, self.type)
        if type_ not in RANGES:
            return None
        reads = [self.value(place, type_) for place in (0, 1)]
        settled = self.tracker.is_settled(self.op, self.sources[0])

        def rule(lanes: Lanes) -> Dependence:
            one, other = dependences[0](), dependences[1]()
            rest = dependences[2]() if len(dependences) > 2 else ZERO
            if one == ZERO and other == ZERO:
                return combined([rest])
            if isinstance(one, str) or isinstance(other, str) or rest == LOADED:
                return LOADED
            left, right = (read(lanes) for read in reads)
            if (settled() and other == ZERO) and _is_sign(relation, right):
                return combined([rest])
            if not (fits(one, left, type_) and fits(other, right, type_)):
                return self.exact(lanes) or UNKNOWN
            self.compare(one, other, left, right, relation, type_)
            return combined([rest])

        return rule

    def compare(
        self, one: Affine, other: Affine, left: Value, right: Value, relation: str, type_: str
    ) -> npt.NDArray[np.bool_]:
        """Keep to the blocks in which each lane's comparison has the same outcome as here."""
        for affine, values in ((one, left), (other, right)):
            self.tracker.stay_in_range(affine, values, type_)
        distance = clipped(left, type_) - clipped(right, type_)
        affine = difference(one, other)
        relation = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(relation, relation)
        outcome = np.asarray(_RELATIONS[relation](distance))
        if relation in ("eq", "ne"):
            for part, least, most in (
                (distance[distance > 0], 1, None), (distance[distance < 0], None, -1),
                (distance[distance == 0], 0, 0),
            ):  # fmt: skip
                self._keep(affine, part, least, most)
            return outcome
        # If the comparison holds, the distance stays on this side of the border, else on the other.
        border = 0 if relation in ("lt", "ge") else 1
        self._keep(affine, distance[distance < border], None, border - 1)
        self._keep(affine, distance[distance >= border], border, None)
        return outcome

    def _keep(self, affine: Affine, distance: Moves, least: int | None, most: int | None) -> None:
        if distance.size:
            low, high = extremes(distance)
            self.tracker.region.limit(
                affine,
                None if least is None else least - low,
                None if most is None else most - high,
            )


def _is_sign(relation: str, right: Value) -> bool:
    """Return whether a comparison only asks whether a number is negative, or zero."""
    low, high = extremes(right)
    return low == high and (low == 0 or (low == -1 and relation in ("gt", "le")))
