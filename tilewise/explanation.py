"""The explanation of how a product is computed: by which kernel, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewise.gemm.chip import OLDEST, Chip
from tilewise.gemm.family import Offer
from tilewise.gemm.grouped.product import OFFSET_TYPES, AnyProduct, Grouped
from tilewise.gemm.plan import best, kept_offer, offers, plan_on
from tilewise.gemm.product import DTYPES, Operand, Product
from tilewise.gemm.steps import Plan, Step
from tilewise.ladder.problem import LARGEST, check_sizes
from tilewise.shown import Part, Shown, Table, expected_time, plural

LAYOUTS = ("NN", "NT", "TN", "TT")
GROUPED = {"m": "NN", "k": "TN"}
"""The dimensions that may be in groups, and how matrices that lie by rows are stored then."""
GROUPS_OF = {"m": "rows", "k": "k"}
ALTERNATIVES = 5
_WIDTH = 80
_LABEL = 14


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """How a product would be computed; ``str()`` is a text.

    Attributes
    ----------
    product : Product or Grouped
        The product, with the layouts of its matrices.
    place : str
        The device on which it is computed.
    chosen, why : str
        The kernel and its tiles, and the reason for this choice.
    copies : tuple of str
        The copies that are made besides, a line each.
    steps : tuple of Step
        The launches, in order.
    workspace : int
        The bytes of device memory that the launches need besides.
    offer : Offer or None
        The chosen family, its choices, and the seconds that its model expects of all launches; None
        on the emulator, and if the arrays' own library computes the product.
    alternatives : tuple of Offer
        The next best offers, from any family.
    rates : str
        The source of the GPU's rates in the model, if they are not measured.
    """

    product: AnyProduct
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
        """The seconds that the model expects of all launches."""
        return None if self.offer is None else self.offer.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, in seconds and bytes."""
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
        if isinstance(self.product, Grouped):
            rows.append(("groups", _groups(self.product)))
        elif self.product.pairing is not None:
            rows.append(("pairs", _pairs(self.product)))
        if isinstance(self.product, Product) and self.product.parts:
            parts = "undivided" if self.product.parts == 1 else f"in {self.product.parts} parts"
            rows.append(("invariant", f"k is {parts}, whatever m is: a row has the same bits"))
        if self.steps:
            rows += [("launches" if i == 0 else "", _launch(x)) for i, x in enumerate(self.steps)]
            rows.append(("workspace", plural(self.workspace, "byte") if self.workspace else "none"))
        rows += [("copied first" if i == 0 else "", x) for i, x in enumerate(self.copies)]
        if self.seconds is not None:
            rows.append(("expected", f"{expected_time(self.seconds)}{_rate(self)}"))
        if self.rates:
            rows.append(("rates", self.rates))
        return rows

    def _parts(self) -> list[Part]:
        parts: list[Part] = [title(self.product), Table(self._rows(), left=2)]
        if self.alternatives:
            rows = [
                (expected_time(x.seconds), x.words + self._why_not(x)) for x in self.alternatives
            ]
            parts.append(Table(rows, ("time", "the next best, by the model"), left=2))
        return parts

    def _why_not(self, other: Offer) -> str:
        """Return why an alternative that the model expects to be faster is not taken."""
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
        """Return the explanation in lines of at most ``width`` columns."""
        lines = [_row("", title(self.product), 0, width)]
        lines += [_row(*row, width=width) for row in self._rows()]
        if self.seconds is not None and self.alternatives:
            lines += ["", "The next best, by the model:"]
            for offer in self.alternatives:
                longer = offer.seconds / self.seconds
                figures = f"{expected_time(offer.seconds)}, {longer:.2f} times as long: "
                lines.append(_row("", figures + offer.words + self._why_not(offer), 2, width))
        return "\n".join(lines)


def explain_product(product: AnyProduct, chip: Chip, copies: Sequence[str] = ()) -> Explanation:
    """Return how a GPU, here or elsewhere, would compute a product.

    Parameters
    ----------
    product : Product or Grouped
    chip : Chip
    copies : sequence of str
        The copies that are made besides.
    """
    place = f"{chip.name}, {chip.multiprocessors} multiprocessors"
    if chip.capability < OLDEST:
        return of_plan(product, place, plan_on(product, None), copies)
    plan = plan_on(product, chip)
    explanation = of_plan(product, place, plan, copies)
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


def of_plan(product: AnyProduct, place: str, plan: Plan, copies: Sequence[str]) -> Explanation:
    """Return the explanation of a plan, without the seconds that a model expects."""
    return Explanation(
        product, place, plan.chosen, plan.why, tuple(copies), plan.steps, plan.workspace
    )


def of_shape(m: int, n: int, k: int, dtype: str, layout: str) -> Product:
    """Return D = A B for matrices without gaps that begin at multiples of 16 bytes.

    Parameters
    ----------
    m, n, k : int
        The sizes, from 1 to 2**31 - 1. D is m x n, A is m x k, B is k x n.
    dtype : str
        The dtype of all three, one of :data:`tilewise.gemm.product.DTYPES`.
    layout : str
        A's letter and B's, one of :data:`LAYOUTS`; T means stored transposed.

    Raises
    ------
    TypeError
        If a size is not an integer.
    ValueError
        If an argument has another value.
    """
    a, b = _stored(m, n, k, dtype, layout)
    m, n, k = int(m), int(n), int(k)
    return Product(m, n, k, 1, dtype, dtype, 1.0, 0.0, a, b, None, Operand(n, 1))


def of_groups(
    m: int,
    n: int,
    k: int,
    groups: int,
    dtype: str,
    layout: str | None = None,
    *,
    of: str = "m",
    offset_dtype: str = "int32",
) -> Grouped:
    """What :func:`tilewise.grouped_matmul` asks for of arrays that lie in one piece each.

    Parameters
    ----------
    m, n, k : int
        From 1 to 2**31 - 1. Of the dimension in groups, the extent of all groups together.
    groups : int
        At least 1.
    dtype : str
        Of x, w and the result.
    layout : str, optional
        The letter of x and that of each matrix of w; by default NN, or TN where k is in groups.
    of : str
        ``"m"`` where rows of x are in groups; ``"k"``, as for the gradient of the weights.
    offset_dtype : str
        Of the offsets.

    Raises
    ------
    TypeError
        If a size or the number of groups is no integer.
    ValueError
        If one of them is not as it must be.
    """
    if of not in GROUPED:
        raise ValueError(f"{of!r} is in groups; one of {', '.join(GROUPED)} can be")
    if offset_dtype not in OFFSET_TYPES:
        raise ValueError(
            f"offset_dtype is {offset_dtype!r}; it takes one of {', '.join(OFFSET_TYPES)}"
        )
    check_groups(groups)
    a, b = _stored(m, n, k, dtype, layout or GROUPED[of])
    m, n, k, groups = int(m), int(n), int(k), int(groups)
    d = Operand(n, 1)
    if of == "m":
        b = b._replace(batch_stride=n * k)
    else:
        d = d._replace(batch_stride=m * n)
    return Grouped(of, m, n, k, groups, dtype, dtype, offset_dtype, a, b, d)


def check_groups(groups: int) -> None:
    """Raise TypeError or ValueError where it is no number of groups."""
    if isinstance(groups, bool) or not hasattr(groups, "__index__"):
        raise TypeError(f"the number of groups is {groups!r}; it must be an integer")
    if not 1 <= groups <= LARGEST:
        raise ValueError(f"the number of groups is {groups:,}; it must be from 1 to {LARGEST:,}")


def _stored(m: int, n: int, k: int, dtype: str, layout: str) -> tuple[Operand, Operand]:
    """Return A and B in a layout, each in one piece."""
    check_sizes(m, n, k)
    m, n, k = int(m), int(n), int(k)  # of NumPy's integers, too
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; it takes one of {', '.join(DTYPES)}")
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}; it takes one of {', '.join(LAYOUTS)}")
    a, b = (
        Operand(1, rows) if letter == "T" else Operand(columns, 1)
        for letter, rows, columns in ((layout[0], m, k), (layout[1], k, n))
    )
    return a, b


def title(product: AnyProduct) -> str:
    """Return the formula, the sizes, the dtypes and the layout of a product as text."""
    x = product
    if isinstance(x, Grouped):
        words = [f"D = A·B of each group of {GROUPS_OF[x.of]}"]
        words += [f"{name} = {getattr(x, name):,}" for name in "mnk"]
        words.append(plural(x.groups, "group"))
        return ", ".join([*words, *_dtypes_and_layout(x)])
    formula = "A·B" if x.alpha == 1 else f"{x.alpha:g}·A·B"
    if x.pairing is not None:
        formula = f"f({formula}, {formula.replace('B', 'U')})"
    if x.beta != 0:
        formula += " + C" if x.beta == 1 else f" + {x.beta:g}·C"
    words = [f"D = {formula}"] + [f"{name} = {getattr(x, name):,}" for name in "mnk"]
    if x.batch != 1:
        words.append(f"{x.batch:,} of them")
    return ", ".join([*words, *_dtypes_and_layout(x)])


def _dtypes_and_layout(x: AnyProduct) -> list[str]:
    words = [x.dtype if x.dtype == x.out_dtype else f"{x.dtype} to {x.out_dtype}"]
    letters = [
        "N" if operand.column_stride == 1 else "T" if operand.row_stride == 1 else "?"
        for operand in (x.a, x.b)
    ]
    if "?" not in letters:
        words.append(f"layout {''.join(letters)}")
    return words


def _groups(x: Grouped) -> str:
    """Say how the groups divide the product, and for which size of a group the plan is made."""
    of = {"m": f"{x.m:,} rows of A", "k": f"{x.k:,} columns of A and rows of B"}[x.of]
    each = "its own matrix B" if x.of == "m" else "its own result"
    mean = f"{x.mean:,.1f}".removesuffix(".0")
    return (
        f"{x.groups:,}, which divide the {of}, {mean} each on average; each has {each}; the kernel "
        f"reads where they end ({x.offset_dtype}), and the plan assumes groups of the average size"
    )


def _pairs(product: Product) -> str:
    """Return what gate and up are, and the layout of their matrices, as text."""
    how = {
        "": "two arrays", "halves": "the halves of one array",
        "interleaved": "the columns of one array in turn",
    }[product.order]  # fmt: skip
    return f"gate is an element of A·B and up of A·U; B and U are {how}"


def as_json(offer: Offer) -> dict[str, Any]:
    """Return an offer's family, choices, seconds and text."""
    return {
        "family": offer.family,
        "choice": dict(offer.choice),
        "seconds": offer.seconds,
        "text": offer.words,
    }


def _launch(step: Step) -> str:
    """Return a launch's kernel, grid, block and shared memory as text."""
    launch = step.launch
    grid = [extent for extent in launch.grid if extent != 1] or [1]
    words = [f"{step.kernel.name}: grid {' x '.join(f'{extent:,}' for extent in grid)}"]
    words.append(f"{plural(launch.block[0], 'thread')} a block")
    if launch.shared:
        words.append(f"{plural(launch.shared, 'byte')} of dynamic shared memory")
    return ", ".join(words)


def _rate(x: Explanation) -> str:
    if not x.seconds:
        return ""
    rate = x.product.flops / x.seconds * 1e-9
    figure = f"{rate * 1e-3:,.1f} TFLOP/s" if rate >= 1000 else f"{rate:,.1f} GFLOP/s"
    return f", {figure}, by the model"


def _row(label: str, text: str, indent: int = _LABEL, width: int = _WIDTH) -> str:
    """Return a label with a text beside it, in lines of at most ``width`` columns."""
    return textwrap.fill(
        text,
        width,
        initial_indent=label.ljust(indent),
        subsequent_indent=" " * (indent + 2 * (not label)),
        break_long_words=False,
        break_on_hyphens=False,
    )
