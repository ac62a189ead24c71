"""Measure products with an epilogue, beside the plain product and beside ``torch.compile``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from tilewise.bench.products import Operands, error_share, operands
from tilewise.bench.record import product_of
from tilewise.bench.stand import Stand, medians, summary
from tilewise.bench.suites import Shape
from tilewise.bench.timing import Work
from tilewise.epilogue import Epilogue
from tilewise.epilogue.functions import gelu, silu
from tilewise.gemm import epilogue as fused
from tilewise.gemm.product import Product, paired
from tilewise.matmul import matmul
from tilewise.precision import limits_of, sums_of
from tilewise.roundoff import gamma, roundings

PLAIN, OURS, EAGER, COMPILED = "plain", "tilewise", "torch", "torch.compile"
MODE = "max-autotune-no-cudagraphs"
GRAPH_FLOPS = 3e11  # products of fewer operations are replayed in CUDA graphs
MANY_ROWS = 512  # the number of rows from which on an epilogue should be almost free
GOALS = {True: 1.02, False: 1.05}  # time by the plain product's, with many rows or fewer
RIVAL_GOALS = 1.05, 0.95  # the rival's time by ours: geometric mean and worst
_CHECKED = 64, 4096  # rows and columns, spread over the result, that are compared with float64

Tensor = Any
Row = dict[str, Any]


def _shape_of(name: str, m: int, n: int) -> tuple[int, ...]:
    return {"bias": (n,), "residual": (m, n)}[name]


@dataclass(frozen=True)
class Case:
    """A product with its epilogue.

    Attributes
    ----------
    name : str
    epilogue : Epilogue
        The epilogue, in tilewise's terms.
    operands : tuple of str
        The names ``"bias"`` (n,) and ``"residual"`` (m, n), in the epilogue's order.
    torch : callable
        The same expression of x (m, k), the weight (n, k) and the operands, as PyTorch has it.
    pairs : str, optional
        As :func:`tilewise.matmul` has it: the result has half of the weight's n columns then.
    """

    name: str
    epilogue: Epilogue
    operands: tuple[str, ...]
    torch: Callable[..., Tensor]
    pairs: str | None = None

    def result(self, given: Given) -> Tensor:
        """Return the memory for the result: D, or for pairs a part of D's memory."""
        d = given.matrices.d
        m, n = d.shape
        return d if self.pairs is None else d.flatten()[: m * (n // 2)].view(m, n // 2)

    def ours(self, given: Given, place: str = "auto") -> None:
        """Put the product with its epilogue on the current stream; ``place`` is Stand's."""
        extra = {name: given.extra[name] for name in self.operands}
        x = given.matrices
        out = self.result(given)
        matmul(
            x.a, x.b, out=out, device=place, epilogue=self.epilogue, pairs=self.pairs, **extra
        )  # fmt: skip

    def theirs(self, function: Callable[..., Tensor], given: Given) -> Tensor:
        """Call a function of PyTorch's for the same."""
        x = given.matrices
        return function(x.a, x.b.mT, *(given.extra[name] for name in self.operands))

    def product(self, shape: Shape, dtype: str) -> Product:
        """Return the product that :func:`tilewise.matmul` is asked for."""
        inputs = []
        for name in self.operands:
            rows = _shape_of(name, shape.m, shape.n)[:-1]
            inputs.append(fused.Strided(dtype, shape.n if rows not in ((), (1,)) else 0, 1))
        of = fused.Epilogue(self.epilogue.traced, tuple(inputs))
        found = product_of(shape, dtype)
        if self.pairs is not None:
            n = shape.n // 2
            b, pairing = paired(found.b, self.pairs, n, dtype)
            d = found.d._replace(row_stride=n)
            found = found._replace(n=n, b=b, d=d, pairing=pairing)
        return found._replace(epilogue=of)


@dataclass(frozen=True)
class Given:
    """One set of operands: a product's matrices, and the arrays that epilogues read besides."""

    matrices: Operands
    extra: dict[str, Tensor]


def _gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias))


def _residual(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, weight, bias) + residual


def _swiglu(x: Tensor, weight: Tensor) -> Tensor:
    gate, up = torch.nn.functional.linear(x, weight).chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


CASES = (
    Case("bias + gelu", Epilogue(lambda acc, bias: gelu(acc + bias)), ("bias",), _gelu),
    Case(
        "bias + residual", Epilogue(lambda acc, bias, residual: acc + bias + residual),
        ("bias", "residual"), _residual,
    ),
    Case(
        "SwiGLU", Epilogue(lambda gate, up: silu(gate) * up, pairs=True), (), _swiglu, "halves"
    ),
)  # fmt: skip


def sets_of(shape: Shape, dtype: str, stand: Stand, cases: Sequence[Case] = CASES) -> list[Given]:
    """Return random operands, as many sets as exceed the L2 cache."""
    generator = stand.generator()
    names = sorted({name for case in cases for name in case.operands})

    def one() -> Given:
        x = operands(shape, dtype, generator)
        extra = {
            name: torch.empty(
                _shape_of(name, shape.m, shape.n), dtype=x.d.dtype, device=stand.device
            ).normal_(generator=generator)
            for name in names
        }
        return Given(x, extra)

    first = one()
    matrices = first.matrices
    tensors = (matrices.a, matrices.b, matrices.d)
    nbytes = sum(x.numel() * x.element_size() for x in tensors)
    return [first, *(one() for _ in range(stand.sets(nbytes) - 1))]


def spread(extent: int, most: int, generator: Any) -> Tensor:
    """Return random indices, one in each of equal stretches, and the first and the last."""
    if extent <= most:
        return torch.arange(extent)
    edges = torch.linspace(0, extent, most + 1, dtype=torch.float64).long()
    inside = torch.rand(most, generator=generator, dtype=torch.float64)
    found = edges[:-1] + (inside * (edges[1:] - edges[:-1])).long()
    found[0], found[-1] = 0, extent - 1
    return found


def enclosed_share(case: Case, given: Given, found: Tensor) -> float:
    """Return the largest error of a result, as a share of what a correct kernel may make there.

    Parameters
    ----------
    case : Case
    given : Given
    found : torch.Tensor, (m, n), or of pairs (m, n / 2)
        The result.

    Returns
    -------
    float
        At most 1 where it is right; infinity where an element is NaN or infinite.

    Notes
    -----
    The sums lie within the bound of :mod:`tilewise.numbers` around those of float64, the
    epilogue's values between the bounds that interval arithmetic gives for such sums
    (:meth:`tilewise.epilogue.Traced.enclose`), and the result is rounded once. Rows and columns are
    a sample, one of each stretch of the result; that every element is finite is seen of all.
    """
    if not bool(torch.isfinite(found).all()):
        return math.inf
    x = given.matrices
    k = x.a.shape[1]
    m, n = found.shape
    generator = torch.Generator().manual_seed(0)
    rows = spread(m, _CHECKED[0], generator).to(found.device)
    columns = spread(n, _CHECKED[1], generator).to(found.device)
    a = x.a[rows].double()
    dtype = str(x.a.dtype).removeprefix("torch.")
    sums, operations = sums_of(dtype), roundings(k, 1, 0)

    def ends(of: Tensor) -> tuple[Any, Any]:
        b = x.b[:, of].double()
        exact = a @ b
        off = (a.abs() @ b.abs()) * (gamma(operations, sums) + gamma(operations + 2, "float64"))
        off += (operations + 2) * limits_of(sums).subnormal
        return (exact - off).cpu().numpy(), (exact + off).cpu().numpy()

    values = []
    for name in case.operands:
        each = given.extra[name]
        each = each[columns][None] if each.ndim == 1 else each[rows][:, columns]
        values.append(each.double().cpu().numpy())
    low, high = ends(columns)
    if case.pairs is not None:  # the values of a pair lie in halves
        others = ends(columns + n)
        low, high = np.stack((low, others[0])), np.stack((high, others[1]))
    ((low, high),) = case.epilogue.traced.enclose(low, high, values, sums.name)
    out = limits_of(str(found.dtype).removeprefix("torch."))
    low = low - (out.unit * np.abs(low) + out.subnormal / 2)
    high = high + (out.unit * np.abs(high) + out.subnormal / 2)
    got = found[rows][:, columns].double().cpu().numpy()
    return float((np.abs(got - (low + high) / 2) / ((high - low) / 2)).max())


def measure(
    shape: Shape, dtype: str, stand: Stand, sets: Sequence[Given], cases: Sequence[Case] = CASES
) -> Row:
    """Check each case's result and time it beside the plain product, all in turn.

    Returns
    -------
    dict
        A row of the record; its ``ratios`` are times by the plain product's, and it has none where
        a result is wrong (``wrong``).
    """
    first = sets[0]
    errors, before = {}, {}

    def plain(x: Operands) -> None:
        matmul(x.a, x.b, out=x.d, device=stand.place)

    works: dict[str, list[Work]] = {PLAIN: [partial(plain, x.matrices) for x in sets]}
    plain(first.matrices)
    errors[PLAIN] = error_share(first.matrices.a, first.matrices.b, first.matrices.d)
    for case in cases:
        first.matrices.d.fill_(math.nan)
        case.ours(first, stand.place)
        errors[case.name] = enclosed_share(case, first, case.result(first))
        before[case.name] = case.result(first).clone()
        works[case.name] = [partial(case.ours, x, stand.place) for x in sets]
    row = _row(shape, dtype, errors)
    asked = {PLAIN: product_of(shape, dtype)} | {x.name: x.product(shape, dtype) for x in cases}
    row["ways"] = {name: stand.way(product) for name, product in asked.items()}
    if row["wrong"]:
        return row
    # A call with operands costs the host more: launches of less than 0.5 ms would wait for it.
    timed = stand.time(works, in_graph=shape.flops < GRAPH_FLOPS or None)
    for case in cases:  # the operands timed are those checked: two runs give the same bits
        case.ours(first, stand.place)
        if not torch.equal(case.result(first), before[case.name]):
            row["wrong"].append(f"{case.name}, once it had been timed")
    found = medians(timed)
    row |= {
        "sets": len(sets), "in_graph": timed.in_graph, "seconds_of_rounds": timed.seconds,
        "seconds": found, "tflops": 1e-12 * shape.flops / found[PLAIN],
        "ratios": {case.name: found[case.name] / found[PLAIN] for case in cases},
    }  # fmt: skip
    return row


def beside_compile(
    case: Case, shape: Shape, dtype: str, stand: Stand, sets: Sequence[Given],
    compiler: Callable[[Callable[..., Tensor]], Callable[..., Tensor]],
) -> Row:  # fmt: skip
    """Check a case's result, and time it beside PyTorch's and a compiled expression of it.

    Parameters
    ----------
    compiler : callable
        The function that :func:`compiler_of` returns.

    Returns
    -------
    dict
        A row of the record; its ``ratios`` are the rivals' times by ours. ``rival_error`` is the
        rival's error as a share of our bound: it rounds more often, and may pass 1.
    """
    first = sets[0]
    start = time.monotonic()
    function = compiler(case.torch)
    theirs = case.theirs(function, first)
    waited = time.monotonic() - start
    first.matrices.d.fill_(math.nan)
    case.ours(first, stand.place)
    row = _row(shape, dtype, {case.name: enclosed_share(case, first, case.result(first))})
    row |= {
        "case": case.name, "compile_seconds": waited,
        "rival_error": enclosed_share(case, first, theirs),
    }  # fmt: skip
    if row["wrong"]:
        return row
    timed = stand.time(
        {
            OURS: [partial(case.ours, x, stand.place) for x in sets],
            COMPILED: [partial(case.theirs, function, x) for x in sets],
            EAGER: [partial(case.theirs, case.torch, x) for x in sets],
        }
    )
    found = medians(timed)
    return row | {
        "sets": len(sets), "in_graph": timed.in_graph, "seconds_of_rounds": timed.seconds,
        "seconds": found, "ratios": {name: found[name] / found[OURS] for name in (COMPILED, EAGER)},
    }  # fmt: skip


def compiler_of(backend: str = "inductor") -> Callable[..., Callable[..., Tensor]]:
    """Return the compiler of an expression for one shape; it forgets earlier code."""

    def compiler(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        torch._dynamo.reset()
        mode = {"mode": MODE} if backend == "inductor" else {}
        compiled: Callable[..., Tensor] = torch.compile(
            function, fullgraph=True, dynamic=False, backend=backend, **mode
        )
        return compiled

    return compiler


def _row(shape: Shape, dtype: str, errors: Mapping[str, float]) -> Row:
    return {
        "name": shape.name, "layout": shape.layout, "m": shape.m, "n": shape.n, "k": shape.k,
        "dtype": dtype,
        "error_share": {name: x if math.isfinite(x) else None for name, x in errors.items()},
        "wrong": [name for name, x in errors.items() if not x <= 1],
    }  # fmt: skip


def summaries(rows: Sequence[Row], beside: Sequence[Row]) -> list[Row]:
    """Return the geometric mean and the worst of each case, beside what they should be.

    Parameters
    ----------
    rows, beside : sequence of dict
        The rows of :func:`measure` and :func:`beside_compile`.
    """
    found: list[Row] = []
    names = list(dict.fromkeys(name for row in rows for name in row.get("ratios", {})))
    for is_many in (True, False):
        words = f"{'from' if is_many else 'below'} {MANY_ROWS} rows{' on' if is_many else ''}"
        for name in names:
            ratios = {
                row["name"]: row["ratios"][name]
                for row in rows
                if (row["m"] >= MANY_ROWS) == is_many and name in row.get("ratios", {})
            }
            if ratios:
                told = {"what": f"{name}: time by the plain product's, {words}", "case": name}
                found.append(told | summary(ratios, goal=GOALS[is_many], is_cost=True))
    for rival in (COMPILED, EAGER):
        goals = RIVAL_GOALS if rival == COMPILED else (None, None)
        ratios = {
            f"{row['name']}, {row['case']}": row["ratios"][rival] for row in beside
            if rival in row.get("ratios", {})
        }  # fmt: skip
        if ratios:
            of = summary(ratios, goal=goals[0], worst_goal=goals[1])
            found.append({"what": f"{rival}: its time by ours", "rival": rival} | of)
    return found
