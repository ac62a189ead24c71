"""Between which bounds what several kernels compute one after another lies.

A value is an interval, and each step widens it by what that step may round: products by the bound
of :mod:`tilewise.numbers`, functions by :meth:`tilewise.epilogue.Traced.enclose`, and what is
stored in 16 bits by their rounding. The float64 reference has to lie between the bounds as well: a
wrong formula here does not pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewise
from tilewise.epilogue import trace
from tilewise.precision import limits_of, sums_of
from tilewise.roundoff import gamma, roundings

Array = Any


@dataclass(frozen=True)
class Within:
    """What lies between two arrays of float64, and how it is stored and summed."""

    low: Array
    high: Array
    dtype: str

    @property
    def middle(self) -> Array:
        return (self.low + self.high) / 2

    @property
    def radius(self) -> Array:
        return (self.high - self.low) / 2

    @property
    def size(self) -> Array:
        """The largest magnitude."""
        return np.maximum(abs(self.low), abs(self.high))

    @property
    def mT(self) -> Within:
        return Within(self.low.T, self.high.T, self.dtype)

    def by(self, off: Array) -> Within:
        """Widened on both sides."""
        return Within(self.low - off, self.high + off, self.dtype)

    @property
    def rounded(self) -> Within:
        """As it is stored."""
        kind = limits_of(self.dtype)
        return self.by(kind.unit * self.size + kind.subnormal)

    def __matmul__(self, other: Within) -> Within:
        """The sums of a product, which are not rounded to the dtype of what is stored."""
        k, sums = self.low.shape[-1], sums_of(self.dtype)
        middle = self.middle @ other.middle
        off = self.radius @ other.size + abs(self.middle) @ other.radius
        operations = roundings(k, 1, 0) + 1  # a bias or another product is added
        share = gamma(operations, sums) + gamma(operations + 2, "float64")
        size = self.size @ other.size
        off += size * share + (operations + 2) * limits_of(sums).subnormal
        return Within(middle - off, middle + off, self.dtype)

    def __add__(self, other: Within) -> Within:
        kind = sums_of(self.dtype)
        found = Within(self.low + other.low, self.high + other.high, self.dtype)
        return found.by(found.size * (limits_of(kind).unit + gamma(1, "float64")))

    def __mul__(self, other: Within) -> Within:
        """The products of the elements."""
        corners = [x * y for x in (self.low, self.high) for y in (other.low, other.high)]
        found = Within(np.minimum.reduce(corners), np.maximum.reduce(corners), self.dtype)
        unit = limits_of(sums_of(self.dtype)).unit
        return found.by(found.size * (unit + gamma(1, "float64")))

    def total(self, axis: int) -> Within:
        """The sum along a dimension that stays, as it is stored."""
        count, sums = self.low.shape[axis], sums_of(self.dtype)
        share = gamma(count, sums) + gamma(count, "float64")
        low, high, size = (x.sum(axis, keepdims=True) for x in (self.low, self.high, self.size))
        return Within(low, high, self.dtype).by(size * share).rounded

    def flat(self) -> Within:
        return Within(self.low.ravel(), self.high.ravel(), self.dtype)

    def holds(self, x: Any) -> bool:
        """Whether a tensor lies between the bounds in each element."""
        found = x.detach().double().cpu().numpy()
        assert found.shape == self.low.shape
        return bool(((self.low <= found) & (found <= self.high)).all())


def exactly(x: Any) -> Within:
    """A tensor's own values."""
    wide = x.detach().double().cpu().numpy()
    return Within(wide, wide, str(x.dtype).removeprefix("torch."))


def of(function: Callable[..., Any], acc: Within, **operands: Within) -> tuple[Within, ...]:
    """What an epilogue gives, as it is computed in the dtype of the sums."""
    traced = trace(function, tuple(operands))
    given = [operands[name] for name in traced.operands]
    shape = np.broadcast_shapes(acc.low.shape, *(x.low.shape for x in given))
    low, high = (np.broadcast_to(x, shape) for x in (acc.low, acc.high))
    sums = sums_of(acc.dtype)
    bounds = traced.enclose(low, high, [(x.low, x.high) for x in given], sums.name)
    return tuple(Within(*ends, acc.dtype) for ends in bounds)


def _of_silu(z: Any) -> Any:
    share = tilewise.sigmoid(z)
    return share * (1 + z * (1 - share))


def _of_gelu(z: Any) -> Any:
    density = tilewise.exp(z * z * -0.5) * (1 / math.sqrt(2 * math.pi))
    return 0.5 * (1 + tilewise.erf(z * math.sqrt(0.5))) + z * density


def _of_gelu_tanh(z: Any) -> Any:
    root = math.sqrt(2 / math.pi)
    tanh = tilewise.tanh(root * (z + 0.044715 * z * z * z))
    inner = root * (1 + 3 * 0.044715 * z * z)
    return 0.5 * (1 + tanh) + 0.5 * z * (1 - tanh * tanh) * inner


DERIVATIVES: dict[str, Callable[[Any], Any]] = {
    "silu": _of_silu, "gelu": _of_gelu, "gelu_tanh": _of_gelu_tanh,
    "relu": lambda z: tilewise.where(z > 0, 1.0, 0.0),
}  # fmt: skip
"""Those of activations, at what is before them."""
