"""Measure the fastest way to compute a product, and keep it for :func:`tilewise.matmul`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Number, Real
from statistics import median
from typing import Any

from tilewise.arrays import repeat
from tilewise.arrays.call import check
from tilewise.arrays.operands import first_gpu, gpu_of
from tilewise.bench.suites import sets_to_rotate
from tilewise.compiler.ahead import compile_ahead
from tilewise.devices import get_device
from tilewise.devices.gpu import Gpu
from tilewise.errors import DeviceUnavailableError
from tilewise.explain import asked, on_arrival
from tilewise.explanation import as_json, of_shape, title
from tilewise.gemm import kept
from tilewise.gemm.chip import Chip
from tilewise.gemm.family import Offer
from tilewise.gemm.plan import best, chip_of, offers, plan_on
from tilewise.gemm.product import ACCUMULATORS, Operand, Product
from tilewise.gemm.steps import Plan, execute
from tilewise.host import product as product_of_host_arrays
from tilewise.roundoff import unit_roundoff
from tilewise.shown import Part, Shown, Table
from tilewise.tracebacks import front_door

CANDIDATES = 24
ROUNDS = 5
GAIN = 1.02  # a smaller gain is within the noise of a measurement
_WARM_UPS = 1 + 1.5 * ROUNDS  # how many times a round's seconds are spent on a contender

Step = Callable[[str], object]
Tensor = Any


@dataclass(frozen=True)
class Timed:
    """The measurement of one offer for a product.

    Attributes
    ----------
    offer : Offer
    seconds : float or None
        The median of the seconds over the rounds; None if it was not timed.
    correct : bool
        Whether its result is correct.
    """

    offer: Offer
    seconds: float | None
    correct: bool


@dataclass(frozen=True, repr=False)
class Tuned(Shown):
    """The measurements of one product.

    Attributes
    ----------
    product : Product
    chip : Chip
    rows : tuple of Timed
        The measured offers, fastest first; none if there is nothing to tune.
    chosen : Offer or None
        The model's choice.
    kept : Offer or None
        The winner, which :func:`tilewise.matmul` uses from now on; None if no offer was faster than
        the model's choice by 2%, or nothing could be kept.
    note : str
        A further remark; empty for none.
    """

    product: Product
    chip: Chip
    rows: tuple[Timed, ...] = ()
    chosen: Offer | None = None
    kept: Offer | None = None
    note: str = ""

    @property
    def correct(self) -> bool:
        """Whether all results were correct; if not, nothing is kept."""
        return all(row.correct for row in self.rows)

    @property
    def chosen_seconds(self) -> float | None:
        """The measured seconds of the model's choice."""
        return next((row.seconds for row in self.rows if row.offer is self.chosen), None)

    def _summary(self) -> str:
        kept = self.note if self.kept is None else f"kept: {self.kept.words}"
        return f"{title(self.product)}, {len(self.rows)} ways timed" + (f", {kept}" if kept else "")

    def _parts(self) -> list[Part]:
        base = self.chosen_seconds
        parts: list[Part] = [
            title(self.product),
            f"on {self.chip.name}, {self.chip.multiprocessors} multiprocessors",
        ]
        rows = []
        for row in self.rows:
            words = row.offer.words + (" (the model's choice)" if row.offer is self.chosen else "")
            cells = ("", "") if row.correct else ("WRONG", "")
            if row.seconds and base:
                cells = f"{row.seconds * 1e6:,.2f}", f"{base / row.seconds:.3f}"
            rows.append((*cells, words))
        if rows:
            parts.append(Table(rows, ("µs", "ratio", "by"), left=3))
            parts.append("ratio: the model's choice's time by this one's.")
        if self.kept is not None:
            parts.append(f"kept, and taken by matmul from now on: {self.kept.words}")
        return [*parts, self.note] if self.note else parts

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with seconds and the speed relative to the model's choice."""
        base = self.chosen_seconds
        return {
            **self.product.to_dict(),
            "chip": asdict(self.chip),
            "correct": self.correct,
            "note": self.note,
            "kept": None if self.kept is None else as_json(self.kept),
            "offers": [
                {
                    **as_json(row.offer),
                    "chosen": row.offer is self.chosen,
                    "kept": row.offer is self.kept,
                    "correct": row.correct,
                    "expected_seconds": row.offer.seconds,
                    "seconds": row.seconds,
                    "ratio": None if not row.seconds or base is None else base / row.seconds,
                }
                for row in self.rows
            ],
        }


@front_door
def tune(
    *products: Any,
    dtype: str = "bfloat16",
    layout: str = "NN",
    seconds: float = 2.0,
    step: Step = lambda _: None,
) -> list[Tuned]:
    """Measure the offers that should be fastest, and keep the winner.

    :func:`tilewise.matmul` uses it from then on, in this process and in later ones, for products of
    the same shape, strides, offsets and dtypes on GPUs of the same kind. A CUDA graph that was
    captured before still replays the old launches.

    Parameters
    ----------
    *products : (int, int, int) or (array, array)
        The products, each as (m, n, k), or as A and B themselves, of which only the layout is read.
    dtype : str
        The dtype of products given by sizes: ``"bfloat16"``, ``"float16"``, ``"float32"`` or
        ``"float64"``.
    layout : str
        The layout of products given by sizes: A's letter and B's, N or T; T means stored
        transposed.
    seconds : float
        The approximate seconds for which a product's offers are timed.
    step : callable
        A function that is called with a description of what comes next, before it begins;
        :func:`steps` returns the most calls.

    Returns
    -------
    list of Tuned
        The measurements of each product, in order.

    Raises
    ------
    ValueError, TypeError
        If an argument is wrong, before anything is measured.
    ImportError
        If PyTorch, which holds the matrices, is not installed.
    DeviceUnavailableError
        If there is no GPU of compute capability 8.0 or above, or PyTorch can't use it.

    Notes
    -----
    Random normal matrices, new and of the same strides. The model's choice is checked against
    float64, the others against its result; all are timed in turn, with inputs that the L2 cache
    does not hold, in CUDA graphs where one launch is short. The winner is kept if it is faster
    than the model's choice by more than 2%.
    """
    if not isinstance(seconds, Real):
        raise TypeError(f"seconds is {seconds!r}; it takes a number of seconds")
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds is {seconds}; it takes a time above 0")
    if not products:
        raise ValueError("there is nothing to tune; give (m, n, k), or (a, b)")
    wanted = [_product(given, dtype, layout) for given in products]
    found = []
    for product, ordinal in wanted:
        gpu = _gpu(ordinal)
        found.append(_tune(product, gpu, seconds, step))
    return found


def steps(products: int) -> int:
    """Return the most calls that :func:`tune` makes of its ``step``."""
    return products * (2 * CANDIDATES + 2)


def _product(given: Any, dtype: str, layout: str) -> tuple[Product, int | None]:
    """Return the product that is asked for, and the GPU that its matrices lie on."""
    if not isinstance(given, Sequence) or len(given) not in (2, 3):
        raise TypeError(f"{given!r} is no product; give (m, n, k), or (a, b)")
    if len(given) == 3:
        m, n, k = given
        return of_shape(m, n, k, dtype, layout), None
    a, b = given
    if isinstance(a, Number) and isinstance(b, Number):
        raise TypeError(f"{given!r} is no product; give (m, n, k), or (a, b)")
    call = check(a, b, None, 1, 0, False, False, None, None, "auto")
    ordinal = call.library.ordinal(a)
    return (on_arrival(call) if ordinal is None else asked(call))[0], ordinal


def _gpu(ordinal: int | None) -> Gpu:
    """Return the GPU to measure on."""
    gpu = gpu_of(ordinal) if ordinal is not None else first_gpu()
    if gpu is None:
        get_device("gpu")  # raises the error that says why there is none
    assert gpu is not None
    from tilewise.bench.record import check_torch

    check_torch(gpu, "tuning needs")
    if chip_of(gpu) is None:
        raise DeviceUnavailableError(
            f"{gpu.description}: only GPUs of compute capability 8.0 or above have kernels to tune"
        )
    return gpu


def _tune(product: Product, gpu: Gpu, seconds: float, step: Step) -> Tuned:
    chip = chip_of(gpu)
    assert chip is not None
    name = f"{product.m} x {product.n} x {product.k}"
    if not (product.m and product.n and product.batch):
        return Tuned(product, chip, note="nothing to tune: the result has no elements")
    chosen = best(product, chip)
    others = [
        x for x in offers(product, chip) if (x.family, x.choice) != (chosen.family, chosen.choice)
    ]
    if not others:
        return Tuned(product, chip, note=f"nothing to tune: {chosen.words} is all there is")
    choices = [chosen, *others[: CANDIDATES - 1]]
    plans = [offer.make() for offer in choices]
    kernels = {repr(one.kernel): one.kernel for plan in plans for one in plan.steps}
    step(f"{name}: compiling")
    compile_ahead(list(kernels.values()), gpu.arch, lambda: step(f"{name}: compiling"), lines=False)
    step(f"{name}: measuring")
    return _measure(product, gpu, chip, choices, plans, seconds)


def _measure(
    product: Product,
    gpu: Gpu,
    chip: Chip,
    choices: Sequence[Offer],
    plans: Sequence[Plan],
    seconds: float,
) -> Tuned:
    import torch

    from tilewise.bench.products import error_share
    from tilewise.bench.timing import in_turn

    chosen = choices[0]
    stream_of = torch.cuda.current_stream
    ordinal = gpu.context.ordinal
    with torch.cuda.device(ordinal), torch.cuda.stream(torch.cuda.Stream()):
        generator = torch.Generator("cuda").manual_seed(0)
        first = _matrices(product, generator)
        nbytes = sum(x.numel() * x.element_size() for x in first)
        more = range(sets_to_rotate(nbytes, gpu.l2_bytes) - 1)
        sets = [first, *(_matrices(product, generator) for _ in more)]
        workspace = torch.empty(
            max(plan.workspace for plan in plans), dtype=torch.uint8, device="cuda"
        )

        def work(plan: Plan, matrices: tuple[Tensor, Tensor, Tensor]) -> Callable[[], None]:
            a, b, d = (x.data_ptr() for x in matrices)
            addresses = (a, b, 0, d, workspace.data_ptr())
            return lambda: execute(plan, gpu, stream_of().cuda_stream, addresses)

        a, b, d = first
        correct = []
        right: Tensor = None
        for plan in plans:
            d.fill_(math.nan)
            work(plan, first)()
            if right is None:
                correct.append(error_share(a, b, d) <= 1)
                right = d.clone()
            else:
                correct.append(_is_near(d, right, product))
        times: dict[str, list[float]] = {}
        if all(correct):
            contenders = {
                str(i): [work(plan, matrices) for matrices in sets] for i, plan in enumerate(plans)
            }
            timed = in_turn(contenders, ROUNDS, seconds / (len(plans) * _WARM_UPS))
            times = timed.seconds
    rows = [
        Timed(offer, median(times[str(i)]) if times else None, correct[i])
        for i, offer in enumerate(choices)
    ]
    if not times:
        return Tuned(product, chip, tuple(rows), chosen, note="a result is wrong: nothing is kept")
    base = rows[0].seconds
    rows.sort(key=lambda row: row.seconds or 0.0)
    return _keep(Tuned(product, chip, tuple(rows), chosen), base or 0.0)


def _keep(found: Tuned, base: float) -> Tuned:
    """Keep the winner if it is enough faster than the model's choice."""
    winner, product, chip = found.rows[0], found.product, found.chip
    assert winner.seconds is not None
    try:
        if base < GAIN * winner.seconds:
            kept.forget(product, chip)
            return replace(found, note="the model's choice stays: none is faster by 2%")
        measured = {"seconds": winner.seconds, "chosen_seconds": base}
        path = kept.keep(product, chip, winner.offer.family, winner.offer.choice, measured)
        if path is None:
            return replace(found, note="the winner could not be kept: the cache can't be written")
        return replace(found, kept=winner.offer)
    finally:
        plan_on.cache_clear()
        repeat.forget()
        product_of_host_arrays.forget()


def _matrices(product: Product, generator: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return random normal A and B, and D, with the layouts of the product."""
    import torch

    def filled(x: Operand, rows: int, columns: int, dtype: str) -> Tensor:
        extents = (product.batch, rows, columns)
        strides = (x.batch_stride, x.row_stride, x.column_stride)
        reach = sum((n - 1) * s for n, s in zip(extents, strides, strict=True))
        kind = getattr(torch, dtype)
        offset = x.offset // kind.itemsize  # new memory is aligned
        flat = torch.empty(offset + 1 + reach, dtype=kind, device="cuda")
        return flat.normal_(generator=generator).as_strided(extents, strides, offset)

    m, n, k = product.m, product.n, product.k
    return (
        filled(product.a, m, k, product.dtype),
        filled(product.b, k, n, product.dtype),
        filled(product.d, m, n, product.out_dtype),
    )


def _is_near(d: Tensor, right: Tensor, product: Product) -> bool:
    """Return whether two results are as near as their roundings allow, in each row's norm.

    Each result is off by k roundings of the sums and one rounding of the elements. An element of a
    product of random normal matrices is about the square root of k.
    """
    import torch

    out = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(product.out_dtype, 0.0)
    accumulator = ACCUMULATORS[product.dtype]
    bound = 2 * (out + (product.k + 1) * unit_roundoff(accumulator))
    norm, wide = torch.linalg.vector_norm, getattr(torch, accumulator)
    off = norm(d.to(wide) - right.to(wide), dim=-1)
    size = norm(right.to(wide), dim=-1) + math.sqrt(product.k * product.n)
    return bool((off <= bound * size).all())
