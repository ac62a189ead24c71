"""One kernel of the ladder: what it takes, and how it is launched."""

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
    """One kernel of the ladder.

    Attributes
    ----------
    number : int
        From 1.
    name : str
        Of the kernel's function.
    idea : str
        What it does, in one sentence.
    why : str
        What running it shows, in one sentence.
    default_tile : int or None
        Edge of a block's tile where none is asked for; None for a rung that has no tiles.
    tiles : sequence of int
        The edges that it takes; empty for a rung that has no tiles.
    counter : str
        What its idea is about, as ``lessons.json`` names it; where it is empty, what falls most.
    against : str
        The rung beside which it is counted; where it is empty, the one before.
    dtypes : tuple of str
        Of the matrices, those that it takes; the first one where none is given.
    needs : str
        The architecture from which on it runs, as ``"sm_80"``, or the only one on which it does,
        as ``"sm_90a"``; empty where any will do.
    default_size : int
        What m, n and k are where they are not given.
    most_elements : int or None
        The most elements that C may have; None where the grid alone bounds them.
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
        """What running it shows, with the counter that its idea is about, as it was counted."""
        return " ".join(filter(None, (self.why, lessons.sentence(self.name))))

    @property
    def path(self) -> Path:
        """The CUDA C++ file."""
        return FOLDER / f"{self.number:02d}_{self.name}.cu"

    def tile(self, tile: int | None = None) -> int | None:
        """The tile to use where ``tile`` is asked for; None for a rung that has none.

        Raises
        ------
        TypeError
            If it is no integer.
        ValueError
            If it is none of ``tiles``, or the rung has none.
        """
        if self.default_tile is None:
            if tile is not None:
                raise ValueError(f"{self.name} has no tiles, so tile {tile} means nothing to it")
            return None
        return self.default_tile if tile is None else check_tile(tile, self.tiles, self.name)

    def dtype(self, dtype: npt.DTypeLike | None = None) -> str:
        """The name of ``dtype``, or where that is None of the rung's own.

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
        """Refuse an architecture that can't run the rung.

        Parameters
        ----------
        arch : str
            What it is to be compiled for, as ``"sm_90a"``.

        Raises
        ------
        LaunchError
            If it is older than what the rung needs, or another than the only one.
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
        """m, n and k: those that are given, and for each None a size at which the rung works.

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
        """The tile to use for a product: ``tile``, or the one that suits it.

        Raises
        ------
        TypeError, ValueError
            As :meth:`tile` and :meth:`kernel`.
        """
        name = self.dtype(dtype)
        if tile is None and self._chooses is not None:
            return self._chooses(m, n, k, name)
        return self.tile(tile)

    def macros(self, tile: int | None = None, dtype: npt.DTypeLike | None = None) -> Macros:
        """What ``tile`` means to the kernel: the macros of its sizes, none without tiles.

        Raises
        ------
        TypeError, ValueError
            As :meth:`tile`.
        """
        edge = self.tile(tile)
        return {} if edge is None else self._macros(edge, self.dtype(dtype))

    def kernel(self, dtype: npt.DTypeLike | None = None, tile: int | None = None) -> Kernel:
        """The kernel for matrices of ``dtype``; it compiles for what can run the rung alone.

        Raises
        ------
        TypeError
            If ``dtype`` is not supported.
        ValueError
            As :meth:`tile`.
        """
        name = self.dtype(dtype)
        defines = {**type_macros(name), **self.macros(tile, name)}
        edge = self.tile(tile)
        options = () if edge is None else self._options(edge, name)
        return RungKernel(self.needs, self.path, self.name, defines, options)

    def shared(self, tile: int | None = None, dtype: npt.DTypeLike | None = None) -> int:
        """Dynamic shared memory of a block, in bytes.

        Raises
        ------
        TypeError, ValueError
            As :meth:`kernel`.
        """
        return self._shared(self.macros(tile, dtype))

    def trailing(
        self, sizes: Sizes, tile: int | None = None, dtype: npt.DTypeLike | None = None
    ) -> tuple[TensorMap | bytes, ...]:
        """What the kernel is given behind the arguments that all rungs have; most have nothing.

        Parameters
        ----------
        sizes : Sizes
            Of the product, with its leading dimensions.
        tile : int, optional
        dtype : dtype, optional

        Returns
        -------
        tuple of TensorMap or bytes
            Tensor maps of A, whose place is array 0, or B, array 1; or a map's 128 bytes where it
            can have none.

        Raises
        ------
        TypeError, ValueError
            As :meth:`kernel`.
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
        """Grid and block for an m x n matrix C of ``dtype``, each as (x, y, z).

        Where blocks take tile after tile, there are as many as ``multiprocessors`` run at once; by
        default those of an H200.

        Raises
        ------
        ValueError
            As :meth:`tile`; if C has more elements than this rung can do; if the grid would pass
            CUDA's limits.
        """
        if m < 0 or n < 0:
            raise ValueError(f"C is {m} x {n}; a size must be at least 0")
        (x, y, z), block = self._rule(m, n, self.tile(tile) or 1, self.dtype(dtype))
        if self._at_once is not None:
            x = self._at_once(x, multiprocessors)
        return (x, y, z), block

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
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
