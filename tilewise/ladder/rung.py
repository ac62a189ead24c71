"""A kernel of the ladder: what it takes, and how it is launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from tilewise.errors import LaunchError
from tilewise.kernel import SOURCES, Kernel
from tilewise.ladder import lessons
from tilewise.ladder.geometry import (
    DEFAULT_SIZE,
    Geometry,
    Macros,
    Rule,
    Sizes,
    check_tile,
    no_options,
    no_shared,
    no_trailing,
    square,
    type_macros,
)
from tilewise.ladder.needs import RungKernel, check_arch
from tilewise.places import TensorMap
from tilewise.precision import REALS, name_of

FOLDER = SOURCES / "ladder"


@dataclass(frozen=True)
class Rung:
    """A kernel of the ladder.

    Attributes
    ----------
    number : int
        The number of the rung, from 1.
    name : str
        The name of the kernel's function.
    idea : str
        What it does, in one sentence.
    why : str
        What running it shows, in one sentence.
    default_tile : int or None
        The edge of a block's tile by default; None for a rung that has no tiles.
    tiles : sequence of int
        The edges that it takes; empty for a rung that has no tiles.
    counter : str
        The counter that its idea is about, as named in ``lessons.json``; if empty, the one that
        falls most.
    against : str
        The rung beside which it is counted; if empty, the one before.
    dtypes : tuple of str
        The dtypes of the matrices that it takes; the first one is the default.
    needs : str
        The architecture from which on it runs, as in ``"sm_80"``, or the only one on which it runs,
        as in ``"sm_90a"``; empty for any.
    default_size : int
        The default of m, n and k.
    most_elements : int or None
        The most elements that C may have; None if only the grid limits them.
    """

    number: int
    name: str
    idea: str
    why: str
    default_tile: int | None
    _rule: Rule = field(repr=False)
    tiles: Sequence[int] = field(default=(), repr=False)
    _macros: Callable[[int, str], Macros] = field(default=square, repr=False)
    counter: str = field(default="", repr=False)
    against: str = field(default="", repr=False)
    dtypes: tuple[str, ...] = field(default=REALS, repr=False)
    needs: str = field(default="", repr=False)
    default_size: int = field(default=DEFAULT_SIZE, repr=False)
    most_elements: int | None = field(default=None, repr=False)
    _options: Callable[[int, str], tuple[str, ...]] = field(default=no_options, repr=False)
    _chooses: Callable[[int, int, int, str], int] | None = field(default=None, repr=False)
    _shared: Callable[[Macros], int] = field(default=no_shared, repr=False)
    _trailing: Callable[[Sizes, Macros, str], tuple[TensorMap | bytes, ...]] = field(
        default=no_trailing, repr=False
    )
    _at_once: Callable[[int, int | None], int] | None = field(default=None, repr=False)

    @property
    def lesson(self) -> str:
        """A sentence on what running it shows, with the counted values of its counter."""
        return " ".join(filter(None, (self.why, lessons.sentence(self.name))))

    @property
    def path(self) -> Path:
        """The CUDA C++ file."""
        return FOLDER / f"{self.number:02d}_{self.name}.cu"

    def tile(self, tile: int | None = None) -> int | None:
        """Return the tile to use if ``tile`` is asked for; None for a rung that has none.

        Raises
        ------
        TypeError
            If it is not an integer.
        ValueError
            If it is not one of ``tiles``, or the rung has none.
        """
        if self.default_tile is None:
            if tile is not None:
                raise ValueError(f"{self.name} has no tiles, so tile {tile} means nothing to it")
            return None
        return self.default_tile if tile is None else check_tile(tile, self.tiles, self.name)

    def dtype(self, dtype: npt.DTypeLike | None = None) -> str:
        """Return the name of ``dtype``, or for None that of the rung's own dtype.

        Raises
        ------
        TypeError
            If the rung does not take it.
        """
        if dtype is None:
            return self.dtypes[0]
        name = name_of(dtype)
        if name not in self.dtypes:
            raise TypeError(
                f"dtype {name} is not supported: {self.name} takes {' and '.join(self.dtypes)}"
            )
        return name

    def check_arch(self, arch: str) -> None:
        """Raise an error for an architecture that can't run the rung.

        Parameters
        ----------
        arch : str
            The architecture to compile for, as in ``"sm_90a"``.

        Raises
        ------
        LaunchError
            If the architecture is older than the rung needs, or is not the only one.
        """
        check_arch(self.name, self.needs, arch)

    def runs_on(self, arch: str) -> bool:
        """Return whether an architecture can run the rung."""
        try:
            self.check_arch(arch)
        except LaunchError:
            return False
        return True

    def sizes(
        self, m: int | None = None, n: int | None = None, k: int | None = None
    ) -> tuple[int, int, int]:
        """Return m, n and k as given, and for each None a size at which the rung works.

        Examples
        --------
        >>> import tilewise
        >>> tilewise.rung("tiled").sizes(m=100), tilewise.rung("single_block").sizes(m=100)
        ((100, 64, 64), (100, 10, 32))
        """
        usual = self.default_size

        def fitting(other: int | None) -> int:
            if self.most_elements is None or not other or other < 0:
                return usual
            return max(min(usual, self.most_elements // other), 1)

        rows = fitting(n) if m is None else m
        columns = fitting(m) if n is None else n
        return rows, columns, usual if k is None else k

    @property
    def tile_by_size(self) -> bool:
        """Whether :meth:`tile_for` depends on the product."""
        return self._chooses is not None

    def tile_for(
        self, m: int, n: int, k: int, dtype: npt.DTypeLike | None = None, tile: int | None = None
    ) -> int | None:
        """Return the tile to use for a product: ``tile``, or for None the one that suits it.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`tile` and :meth:`kernel`.
        """
        name = self.dtype(dtype)
        if tile is None and self._chooses is not None:
            return self._chooses(m, n, k, name)
        return self.tile(tile)

    def macros(self, tile: int | None = None, dtype: npt.DTypeLike | None = None) -> Macros:
        """Return the macros of the kernel's sizes for a ``tile``; none for a rung without tiles.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`tile`.
        """
        edge = self.tile(tile)
        return {} if edge is None else self._macros(edge, self.dtype(dtype))

    def kernel(self, dtype: npt.DTypeLike | None = None, tile: int | None = None) -> Kernel:
        """Return the kernel for ``dtype``, which compiles only where the rung can run.

        Raises
        ------
        TypeError
            If ``dtype`` is not supported.
        ValueError
            As in :meth:`tile`.
        """
        name = self.dtype(dtype)
        defines = {**type_macros(name), **self.macros(tile, name)}
        edge = self.tile(tile)
        options = () if edge is None else self._options(edge, name)
        return RungKernel(self.needs, self.path, self.name, defines, options)

    def shared(self, tile: int | None = None, dtype: npt.DTypeLike | None = None) -> int:
        """Return the bytes of dynamic shared memory of a block.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`kernel`.
        """
        return self._shared(self.macros(tile, dtype))

    def trailing(
        self, sizes: Sizes, tile: int | None = None, dtype: npt.DTypeLike | None = None
    ) -> tuple[TensorMap | bytes, ...]:
        """Return the kernel's arguments after those that all rungs have; most have none.

        Parameters
        ----------
        sizes : Sizes
            The sizes of the product, with its leading dimensions.
        tile : int, optional
        dtype : dtype, optional

        Returns
        -------
        tuple of TensorMap or bytes
            The tensor maps of A, whose place is array 0, and of B, array 1; or 128 zero bytes if
            there can be no map.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`kernel`.
        """
        return self._trailing(sizes, self.macros(tile, dtype), self.dtype(dtype))

    def geometry(
        self,
        m: int,
        n: int,
        tile: int | None = None,
        dtype: npt.DTypeLike | None = None,
        multiprocessors: int | None = None,
    ) -> Geometry:
        """Return the grid and the block for an m x n matrix C of ``dtype``, each as (x, y, z).

        If blocks take tile after tile, there are as many as run at once on ``multiprocessors``, by
        default those of an H200.

        Raises
        ------
        ValueError
            As in :meth:`tile`; or if C has more elements than this rung can do, or the grid would
            exceed CUDA's limits.
        """
        if m < 0 or n < 0:
            raise ValueError(f"C is {m} x {n}; a size must be at least 0")
        (x, y, z), block = self._rule(m, n, self.tile(tile) or 1, self.dtype(dtype))
        if self._at_once is not None:
            x = self._at_once(x, multiprocessors)
        return (x, y, z), block

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "rung": self.number,
            "kernel": self.name,
            "file": self.path.name,
            "idea": self.idea,
            "lesson": self.lesson,
            "dtypes": list(self.dtypes),
            "needs": self.needs,
            "default_tile": self.default_tile,
            "tiles": list(self.tiles),
        }
