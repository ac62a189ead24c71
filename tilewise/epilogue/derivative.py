"""A traced function for training: what its forward pass stores, and its backward pass.

The backward pass is a traced function, too. Its arguments are the results' gradients, the values
that the forward pass stored, and the operands. So the product that computes a gradient can have it
as its epilogue.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tilewise.epilogue.adjoints import adjoints
from tilewise.epilogue.symbols import Symbol, Symbols
from tilewise.epilogue.traced import SUM, Traced, interned, needed_by

KEPT = 1024  # the number of functions whose derivatives are kept


class Backward(NamedTuple):
    """The derivative of a function, multiplied by the gradients of its results.

    Attributes
    ----------
    function : Traced
        The derivative. Its first argument, ``acc``, is the gradient of the first result that has
        one; its results are the wanted gradients, in that order.
    operands : tuple of (str, int)
        The other arguments of ``function``, in its order: ``("gradient", i)`` is the gradient of
        result i, ``("result", i)`` is result i itself, and ``("operand", i)`` is operand i of the
        function that is differentiated.
    """

    function: Traced
    operands: tuple[tuple[str, int], ...]

    @property
    def constant(self) -> bool:
        """Whether the gradients depend only on the gradients of results."""
        return all(kind == "gradient" for kind, _ in self.operands)


class Trained:
    """A function whose derivatives with respect to some of its arguments are wanted.

    Attributes
    ----------
    function : Traced
    wanted : tuple of int
        The arguments whose derivatives are wanted: sums count from 0, and operands follow them.
    forward : Traced
        The function of the forward pass. It returns a tuple: the function's results, and then the
        other values that the backward pass needs.
    stored : tuple of int
        The indices of the results of ``forward`` that the backward pass reads.

    Notes
    -----
    If derivatives depend on a sum, one value computed from it is stored, through which they all
    do. If a result of the function is such a value, as for relu, sigmoid and tanh, it is chosen,
    since it takes no memory of its own. Otherwise it is the last such value that is computed. If
    that is the sum plus a bias, it is what PyTorch stores of a linear layer. The value is rounded
    to the dtype of the results.
    """

    def __init__(self, function: Traced, wanted: tuple[int, ...]) -> None:
        self.function, self.wanted = function, wanted
        self._made: dict[tuple[tuple[int, ...], tuple[int, ...]], Backward] = {}
        symbols = Symbols()
        moved = copied(function.needed, {}, symbols)
        results = [moved.get(id(x), x) for x in function.results]
        leaves = [symbols.make(name) for name in function.sums]
        leaves += [symbols.make("operand", name) for name in function.operands]
        self._leaves, self._symbols = leaves, symbols
        stored: dict[int, Any] = {}
        for leaf in leaves[: len(function.sums)]:
            self._store_for(leaf, results, stored)
        count = len(function.results)
        extra = [x for x in stored.values() if not any(x is y for y in results[:count])]
        self._results = (*results[:count], *extra)
        self.stored = tuple(
            next(i for i, y in enumerate(self._results) if x is y) for x in stored.values()
        )
        self.forward = interned(function.sums, function.operands, self._results, True)

    def _store_for(self, leaf: Symbol, results: list[Any], stored: dict[int, Any]) -> None:
        """Add to ``stored`` the value through which derivatives depend on a sum, if they do."""
        needed = needed_by(results)
        for candidate in self._candidates(leaf, results, needed, stored):
            # A stored value is a result of the forward pass, too, and can have a gradient.
            every = [*results, *(x for x in (*stored.values(), candidate) if x is not None)]
            outputs = self._gradients(every, range(len(every)))
            known = {*stored, *(() if candidate is None else (id(candidate),))}
            if not _reaches(outputs, leaf, known):
                if candidate is not None:
                    stored[id(candidate)] = candidate
                return
        raise AssertionError("a sum itself is always enough")

    def _candidates(
        self, leaf: Symbol, results: list[Any], needed: Sequence[Symbol], stored: dict[int, Any]
    ) -> Iterable[Any]:
        """Yield the candidates to store for a sum, the best first; None stores nothing."""
        outputs = self._gradients(results, range(len(results)))
        yield None
        through = [
            x
            for x in needed
            if not x.is_condition and x.operation != "operand"
            and not _reaches(outputs, leaf, {*stored, id(x)})
        ]  # fmt: skip
        of_results = [x for x in through if any(x is y for y in results)]
        yield from reversed(of_results)
        yield from reversed(through)
        yield leaf

    def _gradients(self, results: Sequence[Any], given: Iterable[int]) -> list[Any]:
        """Return the wanted gradients, given the gradients of some results, which are operands."""
        seeds: dict[int, Any] = {}
        for i in given:
            x = results[i]
            if isinstance(x, Symbol):
                seed = self._symbols.make("operand", f"gradient {i}")
                if id(x) in seeds:
                    seed = seeds[id(x)] + seed
                seeds[id(x)] = seed
        found = adjoints(needed_by(results), seeds)
        return [found.get(id(self._leaves[i]), 0.0) for i in self.wanted]

    def backward(self, given: tuple[int, ...], wanted: tuple[int, ...] | None = None) -> Backward:
        """Return the function that computes the gradients.

        Parameters
        ----------
        given : tuple of int
            The indices of the results of ``forward`` that have a gradient, at least one.
        wanted : tuple of int, optional
            Some of the indices in the attribute ``wanted``; by default all.
        """
        wanted = self.wanted if wanted is None else wanted
        if (given, wanted) not in self._made:
            self._made[given, wanted] = self._backward(given, wanted)
        return self._made[given, wanted]

    def _backward(self, given: tuple[int, ...], wanted: tuple[int, ...]) -> Backward:
        every = self._gradients(self._results, given)
        gradients = [every[self.wanted.index(i)] for i in wanted]
        symbols, operands = Symbols(), []
        leaves: dict[int, tuple[str, int]] = {}
        for i, leaf in enumerate(self._leaves[len(self.function.sums) :]):
            leaves[id(leaf)] = ("operand", i)
        for i in self.stored:
            leaves[id(self._results[i])] = ("result", i)
        for i in given:
            leaves[id(self._symbols.make("operand", f"gradient {i}"))] = ("gradient", i)
        replaced: dict[int, Any] = {}
        for x in needed_by(gradients, leaves):
            if id(x) not in leaves:
                continue
            kind, i = leaves[id(x)]
            if (kind, i) == ("gradient", given[0]):
                replaced[id(x)] = symbols.make(SUM[0])
            else:
                replaced[id(x)] = symbols.make("operand", f"{kind} {i}")
                operands.append((kind, i))
        moved = copied(needed_by(gradients, leaves), replaced, symbols)
        results = tuple(moved.get(id(x), x) for x in gradients)
        names = tuple(f"{kind} {i}" for kind, i in operands)
        return Backward(interned(SUM, names, results, True), tuple(operands))


@lru_cache(maxsize=KEPT)
def trained(function: Traced, wanted: tuple[int, ...]) -> Trained:
    """Return the :class:`Trained` of a function; calls with equal arguments share one."""
    return Trained(function, wanted)


def copied(
    needed: Sequence[Symbol], replaced: Mapping[int, Any], symbols: Symbols
) -> dict[int, Any]:
    """Copy symbols to another :class:`Symbols`, and return the copies by the originals' ``id``.

    ``replaced`` maps some of the originals' ``id`` to symbols that take their place.
    """
    found = dict(replaced)
    for x in needed:
        if id(x) not in found:
            found[id(x)] = symbols.make(x.operation, *(found.get(id(y), y) for y in x.arguments))
    return found


def _reaches(results: Iterable[Any], leaf: Symbol, given: Container[int]) -> bool:
    """Return whether results depend on a symbol by a path around those in ``given``, by ``id``."""
    return id(leaf) not in given and any(x is leaf for x in needed_by(results, given))
