"""The whole of ``tilewise bench``: what it needs, what it measures, the record it leaves."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from tilewise.bench.suites import MOST_SETS, SUITES, Random, Shape, View, is_off, sets_to_rotate
from tilewise.bench.summary import group_of, summaries
from tilewise.compiler.ahead import compile_ahead
from tilewise.devices import get_device
from tilewise.devices.gpu import Gpu
from tilewise.errors import DeviceUnavailableError, TilewiseError
from tilewise.gemm.plan import chip_of, plan_on
from tilewise.gemm.product import Operand, Product, offset
from tilewise.places import ITEM_SIZES
from tilewise.provenance import provenance

if TYPE_CHECKING:
    from tilewise.bench.ceilings import Ceilings

DTYPES = ("bfloat16", "float16", "float32", "float64")
CEILING_SECONDS = 0.6  # long enough for the power limit to rule

Step = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """The settings of a run: what is timed, and for how long.

    Attributes
    ----------
    suites : tuple of str
        Names of :data:`tilewise.bench.suites.SUITES`.
    dtype : str
        One of :data:`DTYPES`.
    rounds : int
        At least 1; five or more for a figure to report.
    seconds : float
        How long ours, or the rival's, is timed in a round; half of that warms up before.
    random : Random, optional
        Products drawn at random, besides those of the suites.

    Raises
    ------
    ValueError
        If one of them is not as it must be.
    """

    suites: tuple[str, ...] = ("square",)
    dtype: str = "bfloat16"
    rounds: int = 5
    seconds: float = 0.1
    random: Random | None = None

    def __post_init__(self) -> None:
        for suite in self.suites:
            if suite not in SUITES:
                raise ValueError(f"no suite called {suite!r}; there are {', '.join(SUITES)}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype is {self.dtype!r}; it takes one of {', '.join(DTYPES)}")
        if self.rounds < 1:
            raise ValueError(f"rounds is {self.rounds}; it takes at least one")
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds is {self.seconds}; it takes a time above 0")

    @property
    def steps(self) -> int:
        """The number of times that :func:`run` calls its ``step``."""
        return 2 + len(self.products)

    @property
    def products(self) -> list[tuple[str, Shape]]:
        """The products that are timed, each with its suite. float64 has no D of another dtype."""
        found = [
            (suite, shape)
            for suite in self.suites
            for shape in SUITES[suite]
            if not (shape.is_wide and self.dtype == "float64")
        ]
        if self.random is not None:
            found += [(self.random.name, shape) for shape in self.random.shapes()]
        return found


def product_of(shape: Shape, dtype: str) -> Product:
    """Return the product that ``matmul`` is asked for, whose matrices lie as the shape says."""

    def lying(view: View, of: str) -> Operand:
        *batch, rows, columns = view.strides
        at = offset(view.offset * ITEM_SIZES[of])
        return Operand(rows, columns, batch[0] if batch else 0, at)

    out = "float32" if shape.is_wide else dtype
    of_a, of_b, of_d = shape.views()
    return Product(
        shape.m, shape.n, shape.k, shape.batch, dtype, out, 1.0, 0.0,
        lying(of_a, dtype), lying(of_b, dtype), None, lying(of_d, out),
    )  # fmt: skip


def find_gpu() -> Gpu:
    """Return the GPU to measure.

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    DeviceUnavailableError
        If there is no GPU, or PyTorch can't use it.
    """
    gpu = get_device("gpu")
    assert isinstance(gpu, Gpu)
    check_torch(gpu, "the rival is")
    return gpu


def check_torch(gpu: Gpu, why: str) -> None:
    """Raise an error if PyTorch can't be used on a GPU.

    Parameters
    ----------
    gpu : Gpu
    why : str
        The beginning of the message: ``"the rival is"``.

    Raises
    ------
    ImportError
        If PyTorch is not installed.
    DeviceUnavailableError
        If PyTorch was built without CUDA, or finds no GPU.
    """
    if importlib.util.find_spec("torch") is None:
        raise ImportError(f"{why} PyTorch, which is not installed: pip install torch")
    import torch

    if not torch.cuda.is_available():
        raise DeviceUnavailableError(
            f"PyTorch {torch.__version__} can't use {gpu.description}: install a build of it for "
            "CUDA"
        )


def run(
    settings: Settings,
    gpu: Gpu,
    step: Step = lambda _: None,
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """Check and time every product of the suites, beside PyTorch.

    Parameters
    ----------
    settings : Settings
    gpu : Gpu
        The GPU that :func:`find_gpu` returns.
    step : callable
        Called with what comes next, before it begins.
    command : sequence of str
        The command line, for the record.

    Returns
    -------
    dict
        Plain data for JSON: ``date``, ``command``, ``machine``, ``versions``, ``correct`` (of
        all), ``method``, ``ceilings``, ``rows`` and ``summaries``.
    """
    import torch

    from tilewise.bench import ceilings as limits
    from tilewise.bench import timing

    with torch.cuda.device(gpu.context.ordinal), torch.cuda.stream(torch.cuda.Stream()):
        step("compiling")
        plans = [plan_on(product_of(x, settings.dtype), chip_of(gpu)) for _, x in settings.products]
        kernels = {repr(one.kernel): one.kernel for plan in plans for one in plan.steps}
        compile_ahead(list(kernels.values()), gpu.arch, lines=False)
        step("ceilings")
        ceilings = limits.measure(gpu, settings.dtype, CEILING_SECONDS)
        rows = [
            _row(suite, shape, settings, gpu, ceilings, step) for suite, shape in settings.products
        ]
    return {
        **provenance(command),
        "correct": all(row["correct"] for row in rows),
        "dtype": settings.dtype,
        "rival": "torch",
        "method": {
            "rounds": settings.rounds,
            "seconds_a_round": settings.seconds,
            "warm_up_seconds": settings.seconds / 2,
            "ceiling_seconds": CEILING_SECONDS,
            "data": "random normal",
            "order": "ours and the rival's in turn, one stream, results into arrays of before",
            "graph_below_seconds": timing.SHORT_SECONDS,
            "graph_launches": timing.GRAPH_LAUNCHES,
            "l2_bytes": gpu.l2_bytes,
            "most_operand_sets": MOST_SETS,
            "operand_sets": "as many as take twice l2_bytes, or the most, used in turn",
            "rival_reduced_precision": {
                "bfloat16": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
                "float16": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            },
        },
        "ceilings": {"tflops": _tera(ceilings.flops), "gigabytes": ceilings.bytes * 1e-9},
        "rows": rows,
        "summaries": summaries(rows),
    }


def _tera(rate: float | None) -> float | None:
    return None if rate is None else rate * 1e-12


def _row(
    suite: str, shape: Shape, settings: Settings, gpu: Gpu, ceilings: Ceilings, step: Step
) -> dict[str, Any]:
    """Return the row of one product: its error, as a share of the bound, and its times."""
    import torch

    from tilewise.bench import products, timing

    step(f"{suite} {shape.name} {shape.layout}")
    generator = torch.Generator("cuda").manual_seed(0)
    first = products.operands(shape, settings.dtype, generator)
    matrices = first.a, first.b, first.d
    nbytes = sum(x.numel() * x.element_size() for x in matrices)
    off = any(is_off(x.data_ptr(), x.shape, x.stride(), x.element_size()) for x in matrices)
    row: dict[str, Any] = {
        "suite": suite,
        "group": group_of(suite, off),
        "name": shape.name,
        "layout": shape.layout,
        **{name: getattr(shape, name) for name in ("m", "n", "k", "batch")},
        "out_dtype": str(first.d.dtype).removeprefix("torch."),
        "storage": {name: asdict(getattr(shape, name)) for name in "abd"},
        "off_16_bytes": off,
        "correct": False,
        "error": None,  # None if there is no error, or it is infinite
    }
    try:
        first.ours()
        error = products.error_share(first.a, first.b, first.d)
        row |= {"correct": error <= 1, "error": error if math.isfinite(error) else None}
        if not row["correct"]:
            wrong = first.d.clone()
            first.ours()
            again = products.error_share(first.a, first.b, first.d)
            what = products.differences(wrong, first.d) or "the same bits"
            return {**row, "failure": f"a wrong result; again: error {again:.3g}, {what}"}
        checked = first.d.clone()
        count = sets_to_rotate(nbytes, gpu.l2_bytes)
        sets = [first]
        sets += [products.operands(shape, settings.dtype, generator) for _ in range(count - 1)]

        def after(name: str, index: int) -> None:
            # The calls timed are those checked: two runs give the same bits.
            if name == "ours" and index == settings.rounds - 1:
                row["correct"] = bool(torch.equal(first.d, checked))

        timed = timing.in_turn(
            {"ours": [x.ours for x in sets], "torch": [x.torch for x in sets]},
            settings.rounds,
            settings.seconds,
            after,
        )
    except (TilewiseError, RuntimeError, ValueError) as failure:
        return {**row, "correct": False, "failure": f"{type(failure).__name__}: {failure}"}
    if not row["correct"]:
        what = products.differences(first.d, checked)
        return {**row, "failure": f"the result changed while it was timed: {what}"}
    ours, rival = (median(timed.seconds[name]) for name in ("ours", "torch"))
    least, limit = ceilings.least_seconds(shape.flops, nbytes)
    return {
        **row,
        "sets": count,
        "in_graph": timed.in_graph,
        "launches_a_round": timed.launches,
        "seconds_of_rounds": timed.seconds,
        "seconds": {"ours": ours, "torch": rival},
        "tflops": {"ours": shape.flops / ours * 1e-12, "torch": shape.flops / rival * 1e-12},
        "ratio": rival / ours,
        "share": None if least is None else least / ours,
        "limit": limit,
    }
