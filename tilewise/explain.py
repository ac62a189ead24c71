"""How a product would be answered, and why so; nothing is launched."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewise import sizes
from tilewise.arrays import fusion, own_product
from tilewise.arrays.call import Call, check
from tilewise.arrays.invariance import is_invariant
from tilewise.arrays.libraries import Array
from tilewise.arrays.operands import (
    Seen,
    epilogue_of,
    first_gpu,
    gpu_of,
    inputs,
    lying,
    new,
    result_operand,
)
from tilewise.devices import Device, device_of
from tilewise.devices.gpu import Gpu
from tilewise.gemm.chip import OLDEST, Chip, known
from tilewise.gemm.epilogue import Epilogue, Strided
from tilewise.gemm.family import Offer
from tilewise.gemm.invariant import fixed
from tilewise.gemm.plan import best, chip_of, kept_offer, offers, plan_on
from tilewise.gemm.product import ACCUMULATORS, DTYPES, Operand, Product
from tilewise.gemm.steps import Plan, Step
from tilewise.host.product import described
from tilewise.ladder.problem import check_sizes
from tilewise.launch import device_name
from tilewise.places import ITEM_SIZES
from tilewise.shown import Part, Shown, Table
from tilewise.tracebacks import front_door

LAYOUTS = ("NN", "NT", "TN", "TT")
ALTERNATIVES = 5
_WIDTH = 80
_LABEL = 14


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """How a product would be answered. ``str()`` is a text for people.

    Attributes
    ----------
    product : Product
        What is asked, and how its matrices lie.
    place : str
        Where it is computed.
    chosen, why : str
        The kernel and its tiles, and why this one.
    copies : tuple of str
        What is copied besides, a line each.
    steps : tuple of Step
        The launches, in order.
    workspace : int
        Bytes of the device's memory that they need besides.
    offer : Offer or None
        The family that answers, its choices, and the seconds that its model expects of all
        launches; None on the emulator, and where the arrays' own library answers.
    alternatives : tuple of Offer
        The next best, of whichever family.
    rates : str
        What the GPU's rates, by which the model goes, come from, where they are not measured.
    """

    product: Product
    place: str
    chosen: str
    why: str
    copies: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    workspace: int = 0
    offer: Offer | None = None
    alternatives: tuple[Offer, ...] = ()
    rates: str = ""

    @property
    def seconds(self) -> float | None:
        """What the model expects of all launches."""
        return None if self.offer is None else self.offer.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; seconds, and bytes."""
        return {
            **self.product.to_dict(),
            "place": self.place,
            "chosen": self.chosen,
            "why": self.why,
            "copies": list(self.copies),
            "launches": [
                {
                    "kernel": step.kernel.name,
                    "grid": list(step.launch.grid),
                    "block": list(step.launch.block),
                    "dynamic_shared_bytes": step.launch.shared,
                }
                for step in self.steps
            ],
            "workspace": self.workspace,
            "offer": None if self.offer is None else as_json(self.offer),
            "seconds": self.seconds,
            "rates": self.rates,
            "alternatives": [as_json(offer) for offer in self.alternatives],
        }

    def _summary(self) -> str:
        return f"{title(self.product)}, by {self.chosen}, on {self.place}"

    def _rows(self) -> list[tuple[str, str]]:
        rows = [("on", self.place), ("by", self.chosen), ("why", self.why)]
        if self.product.epilogue is not None:
            rows.append(("epilogue", str(self.product.epilogue.function)))
        if self.product.pairing is not None:
            rows.append(("pairs", _pairs(self.product)))
        if self.product.parts:
            parts = "undivided" if self.product.parts == 1 else f"in {self.product.parts} parts"
            rows.append(("invariant", f"k is {parts}, whatever m is: a row has the same bits"))
        if self.steps:
            rows += [("launches" if i == 0 else "", _launch(x)) for i, x in enumerate(self.steps)]
            rows.append(("workspace", f"{self.workspace:,} bytes" if self.workspace else "none"))
        rows += [("copied first" if i == 0 else "", x) for i, x in enumerate(self.copies)]
        if self.seconds is not None:
            rows.append(("expected", f"{self.seconds * 1e6:.1f} µs{_rate(self)}"))
        if self.rates:
            rows.append(("rates", self.rates))
        return rows

    def _parts(self) -> list[Part]:
        parts: list[Part] = [title(self.product), Table(self._rows(), left=2)]
        if self.alternatives:
            rows = [
                (f"{x.seconds * 1e6:.1f}", x.words + self._why_not(x)) for x in self.alternatives
            ]
            parts.append(Table(rows, ("µs", "the next best, by the model"), left=2))
        return parts

    def _why_not(self, other: Offer) -> str:
        """Why an alternative that the model expects to be faster is not taken."""
        chosen = self.offer
        if chosen is None or other.seconds >= chosen.seconds:
            return ""
        if other.rank < chosen.rank:
            return "; another was measured to be faster"
        times = other.margin / chosen.margin
        return f"; it is taken where it is {times:.2f} times as fast, as its time is less certain"

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = _WIDTH) -> str:
        """For people, in lines of at most ``width`` columns."""
        lines = [_row("", title(self.product), 0, width)]
        lines += [_row(*row, width=width) for row in self._rows()]
        if self.seconds is not None and self.alternatives:
            lines += ["", "The next best, by the model:"]
            for offer in self.alternatives:
                longer = offer.seconds / self.seconds
                figures = f"{offer.seconds * 1e6:.1f} µs, {longer:.2f} times as long: "
                lines.append(_row("", figures + offer.words + self._why_not(offer), 2, width))
        return "\n".join(lines)


@front_door
def explain(
    a: Array,
    b: Array | tuple[Array, Array],
    c: Array | None = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out: Array | None = None,
    out_dtype: Any = None,
    device: str | Device = "auto",
    max_gpu_memory: int | str | None = None,
    gpu: str | None = None,
    epilogue: Callable[..., Any] | None = None,
    pairs: str | None = None,
    invariant: bool | None = None,
    **operands: Any,
) -> Explanation:
    """How :func:`tilewise.matmul` would answer a call with these arguments, and why so.

    Nothing is launched, compiled or copied.

    Parameters
    ----------
    a, b, c, alpha, beta, transpose_a, transpose_b, out, out_dtype, device, max_gpu_memory
    epilogue, pairs, invariant, operands
        As :func:`tilewise.matmul` has them.
    gpu : str, optional
        A GPU that the product is for, whether it is here or not: as ``"rtx4090"``. ``device`` is
        then ``"auto"``.

    Returns
    -------
    Explanation
        ``str()`` of it is a text for people.

    Raises
    ------
    TypeError, ValueError, DeviceUnavailableError
        As :func:`tilewise.matmul`.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> a = np.ones((3, 4), np.float32)
    >>> print(tilewise.explain(a, a, transpose_b=True, device="emulator"))
    D = A·B, m = 3, n = 3, k = 4, float32, layout NT
    on            the emulator
    by            the general kernel, tiles of 64 x 64
    why           no other family takes it: this is no Hopper GPU; this is no GPU of
                  compute capability 8.0 or above, or it is an emulator, which runs
                  code and has no rates to choose by
    launches      gemm_general: grid 1, 256 threads a block
    workspace     none
    copied first  a and b to the emulator, and the result back
    """
    function = fusion.asked(epilogue, operands, b, pairs)
    call = check(
        a, b, c, alpha, beta, transpose_a, transpose_b, out, out_dtype, device, function,
        is_invariant(invariant),
    )  # fmt: skip
    room = None if max_gpu_memory is None else sizes.parse(max_gpu_memory, "max_gpu_memory")
    if gpu is not None:
        if device != "auto":
            raise ValueError(f"gpu is {gpu!r} and device {device!r}; one of them says where")
        chip = known(gpu)
        return explain_product(_as_asked(call, asked(call)[0], chip), chip)
    ordinal = call.library.ordinal(a)
    if ordinal is not None:
        product, copies = asked(call)
        if why := own_product.why_on_gpu(call.dtype, ordinal):
            return _by_library(call, product, f"GPU {ordinal}", why)
        owner = gpu_of(ordinal)
        return _by_kernels(_as_asked(call, product, chip_of(owner)), owner, copies)
    place = device_of(device) if device != "auto" else first_gpu()
    why = own_product.why_on_host(call.dtype, place) if device == "auto" else ""
    if place is None or why:
        return _by_library(call, on_arrival(call)[0], "the host", why)
    after = ""
    if call.fusion is not None and isinstance(place, Gpu):
        sums = ACCUMULATORS[call.dtype]
        after = f"; then the epilogue by the host, of the sums in {sums}: {call.fusion.function}"
        call, *others = own_product.unpaired(call._replace(out=None, out_dtype=sums, fusion=None))
        after = f"; the same for b[1]{after}" if others else after
    product, copies = on_arrival(call)
    there = device_name(place.name, place.arch)
    given = "a, b and c" if call.c is not None else "a and b"
    travel = f"{given} to {there}, and the result back"
    if isinstance(place, Gpu):
        travel += f": {described(call, place, room)}{after}"
    product = _as_asked(call, product, chip_of(place))
    return _by_kernels(product, place, [*copies, travel])


def _as_asked(call: Call, product: Product, chip: Chip | None) -> Product:
    return fixed(product, chip) if call.invariant else product


def explain_product(product: Product, chip: Chip, copies: Sequence[str] = ()) -> Explanation:
    """How a GPU would answer a product, whether it is here or not.

    Parameters
    ----------
    product : Product
    chip : Chip
    copies : sequence of str
        What is copied besides.
    """
    place = f"{chip.name}, {chip.multiprocessors} multiprocessors"
    if chip.capability < OLDEST:
        return _of_plan(product, place, plan_on(product, None), copies)
    plan = plan_on(product, chip)
    explanation = _of_plan(product, place, plan, copies)
    if not plan.steps:
        return explanation
    if not chip.is_measured:
        note = "by its data sheet: nobody measured matmul on this GPU"
        explanation = replace(explanation, rates=note)
    chosen = kept_offer(product, chip) or best(product, chip)
    others = [
        x for x in offers(product, chip) if (x.family, x.choice) != (chosen.family, chosen.choice)
    ]
    return replace(explanation, offer=chosen, alternatives=tuple(others[:ALTERNATIVES]))


def of_shape(m: int, n: int, k: int, dtype: str, layout: str) -> Product:
    """D = A B of matrices that lie in one piece each, and begin at multiples of 16 bytes.

    Parameters
    ----------
    m, n, k : int
        From 1 to 2**31 - 1. D is m x n, A is m x k, B is k x n.
    dtype : str
        Of all three, one of :data:`tilewise.gemm.product.DTYPES`.
    layout : str
        A's letter and B's, one of :data:`LAYOUTS`: T is stored transposed.

    Raises
    ------
    TypeError
        If a size is no integer.
    ValueError
        If one of them is not as it must be.
    """
    check_sizes(m, n, k)
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; it takes one of {', '.join(DTYPES)}")
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}; it takes one of {', '.join(LAYOUTS)}")
    a, b = (
        Operand(1, rows) if letter == "T" else Operand(columns, 1)
        for letter, rows, columns in ((layout[0], m, k), (layout[1], k, n))
    )
    return Product(m, n, k, 1, dtype, dtype, 1.0, 0.0, a, b, None, Operand(n, 1))


def asked(call: Call) -> tuple[Product, list[str]]:
    """What a call on a GPU asks of it, and what is copied there: nothing is.

    Returns
    -------
    product : Product
    copies : list of str
        A line each.
    """
    a, b, c, up = inputs(call)
    copies = _copies(a, b, c, up)
    d = None if call.out is None else result_operand(call, call.library.view(call.out))
    if d is None:
        d = result_operand(call, new(call.shape))
        if call.out is not None:
            copies.append("the result, from a new array into out: its strides can't be described")
    assert d is not None
    of_c = None if c is None else c.operand
    of_up = None if up is None else up.operand
    return call.product(a.operand, b.operand, of_c, d, _epilogue(call), of_up), copies


def _epilogue(call: Call) -> Epilogue | None:
    """Return a call's epilogue; where strides can't describe an array, that of its copy."""
    library, given = call.library, []
    for _, x in call.fusion.arrays if call.fusion else ():
        dtype = library.dtype_of(x)
        found = lying(call, library.view(x), dtype) or lying(call, new(tuple(x.shape)), dtype)
        given.append(found or Strided(dtype, 1, 1, 1))
    views = [new(call.shape) if out is None else library.view(out) for out in call.outs[1:]]
    return epilogue_of(call, given, views)


def title(product: Product) -> str:
    """The formula, the sizes, the dtypes and the layout."""
    x = product
    formula = "A·B" if x.alpha == 1 else f"{x.alpha:g}·A·B"
    if x.pairing is not None:
        formula = f"f({formula}, {formula.replace('B', 'U')})"
    if x.beta != 0:
        formula += " + C" if x.beta == 1 else f" + {x.beta:g}·C"
    words = [f"D = {formula}"] + [f"{name} = {getattr(x, name):,}" for name in "mnk"]
    if x.batch != 1:
        words.append(f"{x.batch:,} of them")
    words.append(x.dtype if x.dtype == x.out_dtype else f"{x.dtype} to {x.out_dtype}")
    letters = [
        "N" if operand.column_stride == 1 else "T" if operand.row_stride == 1 else "?"
        for operand in (x.a, x.b)
    ]
    if "?" not in letters:
        words.append(f"layout {''.join(letters)}")
    return ", ".join(words)


def _pairs(product: Product) -> str:
    """What gate and up are, and how their matrices lie."""
    how = {
        "": "two arrays", "halves": "the halves of one array",
        "interleaved": "the columns of one array in turn",
    }[product.order]  # fmt: skip
    return f"gate is an element of A·B and up of A·U; B and U are {how}"


def as_json(offer: Offer) -> dict[str, Any]:
    """Its family, choices and seconds, and its text for people."""
    return {
        "family": offer.family,
        "choice": dict(offer.choice),
        "seconds": offer.seconds,
        "text": offer.words,
    }


def on_arrival(call: Call) -> tuple[Product, list[str]]:
    """What a call on the host asks of a device: all arrays are new there."""
    a, b, c, up = inputs(call)
    operands = [None if x is None else x.operand._replace(offset=0) for x in (a, b, c, up)]
    of_a, of_b, of_c, of_up = operands
    assert of_a is not None
    assert of_b is not None
    of_d = Operand(max(call.n, 1), 1, call.m * call.n)
    product = call.product(of_a, of_b, of_c, of_d, _epilogue(call), of_up)
    return product, _copies(a, b, c, up)


def _copies(*seen: Seen | None) -> list[str]:
    return [
        f"{name}, as its strides can't be described, or it is sparse"
        for name, x in zip(("a", "b", "c", "b[1]"), seen, strict=True)
        if x is not None and x.copy is not None
    ]


def _by_kernels(product: Product, device: Device, copies: Sequence[str]) -> Explanation:
    chip = chip_of(device)
    if chip is not None:
        return explain_product(product, chip, copies)
    place = device.description if device.name == "gpu" else device_name("emulator", device.arch)
    return _of_plan(product, place, plan_on(product, None), copies)


def _of_plan(product: Product, place: str, plan: Plan, copies: Sequence[str]) -> Explanation:
    return Explanation(
        product, place, plan.chosen, plan.why, tuple(copies), plan.steps, plan.workspace
    )


def _by_library(call: Call, product: Product, place: str, why: str) -> Explanation:
    name = {"numpy": "NumPy", "torch": "PyTorch", "cupy": "CuPy"}[call.library.name]
    copies = []
    if ITEM_SIZES[call.dtype] == 2 and not call.library.sums_in_float32(call.a):
        copies.append("a and b, as float32: the product is summed in it, and then rounded")
    return Explanation(product, place, f"{name}'s own product", why, tuple(copies))


def _launch(step: Step) -> str:
    launch = step.launch
    grid = [extent for extent in launch.grid if extent != 1] or [1]
    words = [f"{step.kernel.name}: grid {' x '.join(f'{extent:,}' for extent in grid)}"]
    words.append(f"{launch.block[0]:,} threads a block")
    if launch.shared:
        words.append(f"{launch.shared:,} bytes of dynamic shared memory")
    return ", ".join(words)


def _rate(x: Explanation) -> str:
    if not x.seconds:
        return ""
    columns = x.product.n * (1 if x.product.pairing is None else 2)
    flops = 2.0 * x.product.batch * x.product.m * columns * x.product.k
    return f", {flops / x.seconds * 1e-12:,.1f} TFLOP/s, by the model"


def _row(label: str, text: str, indent: int = _LABEL, width: int = _WIDTH) -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=label.ljust(indent),
        subsequent_indent=" " * (indent + 2 * (not label)),
        break_long_words=False,
        break_on_hyphens=False,
    )
