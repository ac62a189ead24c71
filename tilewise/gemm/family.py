"""The interface between the planner and a family of kernels.

A family is a class in a module of its own under ``families``, together with its kernels. A new
dtype, a new GPU or a new kernel takes one more class, and an instance of it in
:data:`tilewise.gemm.plan.FAMILIES`; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from tilewise.gemm.chip import Chip
from tilewise.gemm.product import Product
from tilewise.gemm.steps import Plan
from tilewise.kernel import Kernel

NO_RATES = "this is no GPU of compute capability 8.0 or above, whose rates the planner needs"
"""The objection of a family that chooses by a GPU's rates, on a device that has none."""


class Offer(NamedTuple):
    """One way to compute a product.

    Attributes
    ----------
    family : str
        The family's name.
    seconds : float
        The time that it should take by the family's model, in seconds.
    make : callable
        A function that makes the plan. Planning compares many offers, and makes only the best one.
    choice : mapping
        The free choices as JSON values, by which the family finds the offer again.
    words : str
        The choices in words.
    margin : float
        The factor by which the offer has to be faster than others to be chosen; it is above 1 if,
        for instance, the offer takes a workspace.
    divides_k : bool
        Whether k is divided among blocks, or among the warps of a block, so that the bits of a
        result depend on the division. A caller that computes a product piece by piece and wants the
        bits of the whole product has to avoid it.
    """

    family: str
    seconds: float
    make: Callable[[], Plan]
    choice: Mapping[str, Any] = {}  # a read-only mapping could not be pickled
    words: str = ""
    margin: float = 1.0
    divides_k: bool = False

    @property
    def rank(self) -> float:
        """The seconds times the margin; the planner chooses the offer of the least rank."""
        return self.seconds * self.margin


Asked = TypeVar("Asked", contravariant=True)


class FamilyOf(Protocol[Asked]):
    """A family of kernels for what is asked: products, or grouped ones.

    Attributes
    ----------
    name : str
        The family's name in records and in messages.
    """

    name: str

    def objection(self, product: Asked, chip: Chip | None) -> str:
        """Return why the family can't compute a product; empty if it can.

        Parameters
        ----------
        product : Product or Grouped
        chip : Chip or None
            The GPU; None for the emulator, and for GPUs before compute capability 8.0.
        """
        ...

    def best(self, product: Asked, chip: Chip | None) -> Offer | None:
        """Return the offer that should be fastest; None if there is an objection."""
        ...

    def offers(self, product: Asked, chip: Chip | None) -> Iterable[Offer]:
        """Return every offer worth measuring, the one that should be fastest first.

        A family that derives from this class need not define it if :meth:`best` is its only offer.
        """
        found = self.best(product, chip)
        return [] if found is None else [found]

    def offer(self, product: Asked, chip: Chip | None, choice: Mapping[str, Any]) -> Offer | None:
        """Return the offer with these choices; None if the product can't be computed with them.

        A family that derives from this class need not define it.
        """
        return next((each for each in self.offers(product, chip) if each.choice == choice), None)

    def kernels(self, chip: Chip | None, dtype: str) -> Iterable[Kernel]:
        """Return every kernel that :meth:`best` can choose for inputs of this dtype on this GPU."""
        ...


Family: TypeAlias = FamilyOf[Product]
"""One of those whose offers for a product are compared."""
