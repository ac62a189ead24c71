"""Make the arguments, and check the results, that many of the samples have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from projects.case import Array, Case, Draw, near, right_product, same

COMMON = ("Common",)
"""The folder of headers that the samples share."""


def sample(
    file: str,
    kernel: str,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    draw: Draw,
    **more: Any,
) -> Case:
    """Return a kernel of a file in ``Samples``, whose ``../inc`` is searched where it has one."""
    folder = file.rpartition("/")[0]
    include = (*COMMON, f"Samples/{folder[:-3]}inc") if folder.endswith("/src") else COMMON
    return Case(f"Samples/{file}", kernel, grid, block, draw, include=include, **more)


def floats(rng: np.random.Generator, *shape: int) -> Array:
    """Draw float32 numbers, normally distributed."""
    return rng.standard_normal(shape).astype(np.float32)


def added(n: int) -> Draw:
    """Make (a, b, c, n), for c = a + b."""

    def draw(rng: np.random.Generator) -> tuple[Sequence[Any], Callable[[], str]]:
        a, b, c = floats(rng, n), floats(rng, n), np.zeros(n, np.float32)
        return (a, b, c, n), lambda: same(c, a + b)

    return draw


def product(m: int, n: int, k: int, *, dims: int = 2) -> Draw:
    """Make (C, A, B, k, n), for C = A B, C is m x n; with ``dims`` 1, (C, A, B, k) of squares."""

    def draw(rng: np.random.Generator) -> tuple[Sequence[Any], Callable[[], str]]:
        a, b, c = floats(rng, m, k), floats(rng, k, n), np.zeros((m, n), np.float32)
        return (c, a, b, *(k, n)[:dims]), lambda: right_product(c, a, b)

    return draw


def written(make: Callable[[np.random.Generator], tuple[Sequence[Any], Array, Array]]) -> Draw:
    """Make arguments of a function that also gives the array written, and what it shall be."""

    def draw(rng: np.random.Generator) -> tuple[Sequence[Any], Callable[[], str]]:
        args, found, wanted = make(rng)
        return args, lambda: same(found, wanted)

    return draw


def rounded(
    make: Callable[[np.random.Generator], tuple[Sequence[Any], Array, Array, int]],
) -> Draw:
    """Make arguments as :func:`written`, of a result with so many roundings."""

    def draw(rng: np.random.Generator) -> tuple[Sequence[Any], Callable[[], str]]:
        args, found, wanted, steps = make(rng)
        return args, lambda: near(found, wanted, steps)

    return draw


def sorted_pairs(keys: Array, values: Array, wanted: Array, before: Array, length: int) -> str:
    """Say what is wrong with keys that were sorted with their values, in runs of ``length``.

    A value is its key's place ``before``, so that equal keys may stand in any order.
    """
    if wrong := same(keys, wanted, "the keys"):
        return wrong
    runs = len(keys) // length
    places = np.sort(values.reshape(runs, length), axis=1).ravel()
    return same(places, np.arange(len(keys)), "the set of values") or same(
        before[values], keys, "the values' keys"
    )
