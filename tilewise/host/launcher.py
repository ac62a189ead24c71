"""Launch the steps of a plan; each different product is planned and prepared once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewise.devices.gpu import Gpu
from tilewise.devices.prepared import Prepared
from tilewise.gemm import beside, round_sums
from tilewise.gemm.plan import chip_of, plan_of_piece, plan_product
from tilewise.gemm.product import ACCUMULATORS, Operand, Product, offset
from tilewise.gemm.steps import Plan, prepare
from tilewise.host.channel import Channel, Stream
from tilewise.host.execute import COMPUTE_STREAMS
from tilewise.host.matrices import MatrixLayout
from tilewise.host.plan import GRAIN, Compute, HostPlan, HostProblem, Region, rounded
from tilewise.places import ITEM_SIZES

MOST_WORKSPACE = 1 << 30
"""The most bytes of a product's workspace."""


class Operation(NamedTuple):
    """The dtypes and the factors of a product D = alpha A B + beta C.

    Attributes
    ----------
    dtype, out_dtype : str
        The dtype of A and B, and the dtype of C and D.
    alpha, beta : float
    parts : int
        The number of parts of k, as in :attr:`tilewise.gemm.product.Product.parts`.
    """

    dtype: str
    out_dtype: str
    alpha: float
    beta: float
    parts: int = 0


def operand(layout: MatrixLayout, region: Region) -> Operand:
    """Return the layout of a region, which begins at a multiple of 256 bytes or within a matrix."""
    pitch = region.pitch // layout.item
    row, column = (pitch, 1) if layout.by_rows else (1, pitch)
    return Operand(row, column, region.stride // layout.item, offset(region.offset))


def product_of(
    step: Compute, problem: HostProblem, operation: Operation, sums_apart: bool
) -> Product:
    """Return the product that a step computes.

    Parameters
    ----------
    step : Compute
    problem : HostProblem
    operation : Operation
    sums_apart : bool
        Whether ``step.d`` holds sums that are rounded at the end.
    """
    wide = ACCUMULATORS[operation.dtype]
    out_dtype = wide if sums_apart else operation.out_dtype
    of_d = operand(problem.d._replace(item=ITEM_SIZES[out_dtype]), step.d)
    beta = 1.0
    if step.is_first:
        beta = 0.0 if sums_apart or not problem.reads_c else operation.beta
    return Product(
        step.m, step.n, step.k, step.batch, operation.dtype, out_dtype, operation.alpha, beta,
        operand(problem.a, step.a), operand(problem.b, step.b), of_d if beta else None, of_d,
        parts=operation.parts,
    )  # fmt: skip


class GpuLauncher:
    """A plan and its launches on a GPU, with kernels compiled and arguments checked.

    Parameters
    ----------
    gpu : Gpu
    problem : HostProblem
    operation : Operation
    plan : HostPlan
    room : int
        The bytes of the GPU's memory that the product may take.

    Attributes
    ----------
    problem : HostProblem
    plan : HostPlan
    workspace : int
        The bytes of workspace that each of the plan's products may need.
    """

    def __init__(
        self, gpu: Gpu, problem: HostProblem, operation: Operation, plan: HostPlan, room: int
    ) -> None:
        self._gpu, self._operation = gpu, operation
        self.problem, self.plan = problem, plan
        self._prepared: dict[Product, tuple[Prepared, ...]] = {}
        self._roundings: dict[tuple[int, ...], tuple[Prepared, ...]] = {}
        self.workspace = self._prepare((room - plan.memory) // COMPUTE_STREAMS)

    def _prepare(self, room: int) -> int:
        """Prepare every product within ``room`` bytes of workspace; return the bytes needed."""
        most = 0
        computed = [step for step in self.plan.steps() if isinstance(step, Compute)]
        for step in computed:
            product = self._product(step)
            if product not in self._prepared:
                of_product = self._plan(product, room, is_piece=len(computed) > 1)
                self._prepared[product] = beside.launches(product, of_product, self._gpu)
                most = max(most, of_product.workspace)
        return rounded(most)

    def _plan(self, product: Product, room: int, is_piece: bool) -> Plan:
        """Return the plan of a product whose workspace takes at most ``room`` bytes."""
        if not is_piece:
            found = plan_product(product, self._gpu)
            if found.workspace <= room:
                return found
        return plan_of_piece(product, chip_of(self._gpu), min(room, MOST_WORKSPACE))

    def launches_of(self, step: Compute) -> tuple[Prepared, ...]:
        """Return the launches of a step's product."""
        return self._prepared[self._product(step)]

    def launch(
        self, step: Compute, channel: Channel, stream: Stream, base: int, workspace: int
    ) -> None:
        """Launch a product whose regions begin at ``base``, a multiple of 256."""
        assert base % GRAIN == 0
        a, b, d = (base + region.offset for region in (step.a, step.b, step.d))
        channel.launch(self.launches_of(step), stream, (a, b, d, d, workspace))
        if step.result is not None:
            addresses = (0, 0, d, base + step.result.offset, 0)
            channel.launch(self._rounding(step, step.result), stream, addresses)

    def _product(self, step: Compute) -> Product:
        return product_of(step, self.problem, self._operation, self.plan.sums_apart)

    def _rounding(self, step: Compute, result: Region) -> Sequence[Prepared]:
        of_d = self.problem.d
        lines, width = (step.m, step.n) if of_d.by_rows else (step.n, step.m)
        pitches = step.d.pitch // self.problem.sums, result.pitch // of_d.item
        key = (lines, width, *pitches)
        if key not in self._roundings:
            beta = self._operation.beta if self.problem.reads_c else 0.0
            plan = round_sums.plan(lines, width, *pitches, self._operation.out_dtype, beta)
            self._roundings[key] = prepare(plan, self._gpu)
        return self._roundings[key]
