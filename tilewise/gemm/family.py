"""What the planner asks of a family of kernels.

A family is a class in a module of its own under ``families``, and its kernels: a new dtype, a new
GPU or a new kernel is one class more, an instance of which :data:`tilewise.gemm.plan.FAMILIES`
lists, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from tilewise.gemm.chip import Chip
from tilewise.gemm.product import Product
from tilewise.gemm.steps import Plan
from tilewise.kernel import Kernel

NO_RATES = (
    "this is no GPU of compute capability 8.0 or above, or it is an emulator, which runs code and "
    "has no rates to choose by"
)
"""The objection of families that choose by a GPU's rates, where there are none."""


class Offer(NamedTuple):
    """One way to compute a product.

    Attributes
    ----------
    family : str
        The family's name.
    seconds : float
        How long it should take, by the family's model.
    make : callable
        Makes the plan. Planning compares many offers, and only the best one is made.
    choice : mapping
        The free choices, as JSON has them: the family finds the offer again by them.
    words : str
        The choices for people.
    margin : float
        The offer has to be this many times faster than others to be taken: above 1 where it
        takes a workspace, for instance.
    divides_k : bool
        Whether k is divided, among blocks or the warps of one, so that the bits of a result depend
        on how: whoever computes it by pieces wants those of the whole.
    """

    family: str
    seconds: float
    make: Callable[[], Plan]
    choice: Mapping[str, Any] = MappingProxyType({})
    words: str = ""
    margin: float = 1.0
    divides_k: bool = False

    @property
    def rank(self) -> float:
        """The planner takes the offer of the least rank."""
        return self.seconds * self.margin


class Family(Protocol):
    """A family of kernels.

    Attributes
    ----------
    name : str
        In records, and for people.
    """

    name: str

    def objection(self, product: Product, chip: Chip | None) -> str:
        """Return why the family can't compute a product; empty if it can.

        Parameters
        ----------
        product : Product
        chip : Chip or None
            None for the emulator, and for GPUs before compute capability 8.0.
        """
        ...

    def best(self, product: Product, chip: Chip | None) -> Offer | None:
        """Return the offer that should be fastest; None where there is an objection."""
        ...

    def offers(self, product: Product, chip: Chip | None) -> Iterable[Offer]:
        """Return every offer worth measuring, the one that should be fastest first."""
        ...

    def offer(self, product: Product, chip: Chip | None, choice: Mapping[str, Any]) -> Offer | None:
        """Return the offer with these choices; None where the product can't be computed so."""
        ...

    def kernels(self, chip: Chip | None, dtype: str) -> Iterable[Kernel]:
        """Return every kernel that :meth:`best` can ask for with these inputs on this GPU."""
        ...
