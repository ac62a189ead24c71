"""Make grouped products of mixtures of experts, with sizes and arrays, and check one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from tilewise.bench.products import error_share
from tilewise.grouped import grouped_matmul

Tensor = Any

FORWARD, GRADIENT = "forward", "gradient"
EVEN, ROUTED, SKEWED = "even", "routed", "skewed"
MAJORS = ("nk", "kn")
"""The layouts of the weights: (groups, n, k), as PyTorch's linear layers have them, or
(groups, k, n).
"""


@dataclass(frozen=True)
class Layer:
    """A layer of experts, each of them k x n, and the number of experts for a token."""

    name: str
    groups: int
    n: int
    k: int
    experts_a_token: int


LAYERS = (
    Layer("Mixtral-8x7B up", 8, 14336, 4096, 2),
    Layer("Mixtral-8x7B down", 8, 4096, 14336, 2),
    Layer("DeepSeek-V3 up", 256, 2048, 7168, 8),
    Layer("DeepSeek-V3 down", 256, 7168, 2048, 8),
    Layer("Qwen3-30B-A3B gate-up", 128, 1536, 2048, 8),
    Layer("Qwen3-30B-A3B down", 128, 2048, 768, 8),
    Layer("Qwen3-235B-A22B gate-up", 128, 3072, 4096, 8),
    Layer("gpt-oss-120b gate-up", 128, 5760, 2880, 4),
    Layer("Llama-4-Scout up", 16, 8192, 5120, 1),
    Layer("OLMoE gate-up", 64, 2048, 2048, 8),
)
DECODE, PREFILL = (16, 64, 256), (1024, 4096, 16384)
"""The numbers of tokens in a batch; the layers take them in turn."""


@dataclass(frozen=True)
class Case:
    """One grouped product.

    Attributes
    ----------
    name, load : str
    form : str
        :data:`FORWARD`, or :data:`GRADIENT`, that of the weights: k is in groups.
    sizes : tuple of int
        The rows of each group.
    n, k : int
        The weights' sizes.
    """

    name: str
    load: str
    form: str
    sizes: tuple[int, ...]
    n: int
    k: int

    @property
    def rows(self) -> int:
        """The rows of all groups together."""
        return sum(self.sizes)

    @property
    def flops(self) -> int:
        """The number of floating-point operations; a multiply-add is two."""
        return 2 * self.rows * self.n * self.k

    def __str__(self) -> str:
        sizes = f"{len(self.sizes)} groups of {min(self.sizes)} to {max(self.sizes)} rows"
        return f"{self.form} {self.name}, {self.load}: {sizes}, n {self.n}, k {self.k}"


def loads(groups: int, rows: int, load: str, random: np.random.Generator) -> tuple[int, ...]:
    """Return the rows of each group.

    Parameters
    ----------
    groups, rows : int
    load : str
        :data:`EVEN`: as equal as can be. :data:`ROUTED`: each row goes to any group.
        :data:`SKEWED`: to some more than to others, whose shares are log-normal with the
        deviation 1.
    random : numpy.random.Generator
    """
    if load == EVEN:
        return tuple(rows // groups + (i < rows % groups) for i in range(groups))
    shares = np.ones(groups) if load == ROUTED else random.lognormal(0, 1, groups)
    return tuple(int(x) for x in random.multinomial(rows, shares / shares.sum()))


def layer_cases(form: str, seed: int = 0) -> list[Case]:
    """Return the cases of :data:`LAYERS`: decode, and prefill with even and with skewed loads."""
    found = []
    random = np.random.default_rng(seed)
    for i, x in enumerate(LAYERS):
        kinds = [(PREFILL[i % 3], EVEN), (PREFILL[(i + 1) % 3], SKEWED)]
        if form == FORWARD:
            kinds.insert(0, (DECODE[i % 3], ROUTED))
        for tokens, load in kinds:
            sizes = loads(x.groups, tokens * x.experts_a_token, load, random)
            found.append(Case(f"{x.name}, {tokens} tokens", load, form, sizes, x.n, x.k))
    return found


def random_cases(count: int, seed: int, form: str = FORWARD) -> list[Case]:
    """Return cases that are drawn: sizes are log-uniform, n and k are multiples of 64."""
    random = np.random.default_rng(seed)

    def drawn(low: int, high: int, step: int = 1) -> int:
        return step * round(math.exp(random.uniform(math.log(low), math.log(high))) / step)

    found: list[Case] = []
    while len(found) < count:
        groups, n, k = drawn(8, 256), drawn(512, 8192, 64), drawn(512, 8192, 64)
        rows = groups * drawn(1, 2048)
        load = (EVEN, ROUTED, SKEWED)[int(random.integers(3))]
        if groups * n * k <= 4e9 and rows * n * k <= 4e12:
            sizes = loads(groups, rows, load, random)
            found.append(Case(f"drawn {len(found)} of seed {seed}", load, form, sizes, n, k))
    return found


@dataclass(frozen=True)
class Operands:
    """The arrays of one case, as :func:`tilewise.grouped_matmul` takes them, and the result."""

    x: Tensor
    w: Tensor
    offsets: Tensor
    d: Tensor

    def ours(self) -> None:
        grouped_matmul(self.x, self.w, self.offsets, out=self.d)

    def torch(self) -> None:
        torch._grouped_mm(self.x, self.w, offs=self.offsets)

    @property
    def bytes(self) -> int:
        """The bytes of all arrays."""
        return sum(a.numel() * a.element_size() for a in (self.x, self.w, self.d))


def operands(case: Case, dtype: str, major: str, generator: Any) -> Operands:
    """Return new arrays of random normal numbers, where ``generator`` is; the result is NaN."""
    kind, place = getattr(torch, dtype), generator.device

    def normal(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=kind, device=place).normal_(generator=generator)

    groups, rows, n, k = len(case.sizes), case.rows, case.n, case.k
    offsets = torch.tensor(list(accumulate(case.sizes)), dtype=torch.int32, device=place)
    if case.form == GRADIENT:
        x, w = normal(rows, k).T, normal(rows, n)
        shape: tuple[int, ...] = (groups, k, n)
    else:
        x, shape = normal(rows, k), (rows, n)
        w = normal(groups, n, k).mT if major == "nk" else normal(groups, k, n)
    return Operands(x, w, offsets, torch.full(shape, math.nan, dtype=kind, device=place))


def largest_error_share(case: Case, arrays: Operands, d: Tensor, most: int) -> float:
    """Return the largest error of a result, as a share of what a correct kernel may make there.

    Parameters
    ----------
    case : Case
    arrays : Operands
    d : Tensor
        The result.
    most : int
        Groups that are looked at, the first, the last and the largest among them. Of all others,
        every element must be finite.
    """
    if not bool(torch.isfinite(d).all()):
        return math.inf
    ends = list(accumulate(case.sizes))
    filled = [i for i, size in enumerate(case.sizes) if size]
    largest = 0.0
    for i in _spread(filled, case.sizes, most):
        rows = slice(ends[i] - case.sizes[i], ends[i])
        if case.form == GRADIENT:
            share = error_share(arrays.x[:, rows], arrays.w[rows], d[i])
        else:
            share = error_share(arrays.x[rows], arrays.w[i], d[rows])
        largest = max(largest, share)
    if case.form == GRADIENT:
        for i, size in enumerate(case.sizes):
            if not size and bool(d[i].any()):
                return math.inf
    return largest


def _spread(filled: Sequence[int], sizes: Sequence[int], most: int) -> list[int]:
    if len(filled) <= most:
        return list(filled)
    step = (len(filled) - 1) / max(most - 2, 1)
    chosen = {filled[round(i * step)] for i in range(most - 1)}
    return sorted(chosen | {max(filled, key=lambda i: sizes[i])})
