"""Run the whole ladder on one problem: every rung at the problem's size, or as near as it can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewise.devices import Device
from tilewise.errors import CheckError, LaunchError
from tilewise.ladder.geometry import listed
from tilewise.ladder.problem import random_problem
from tilewise.ladder.run import NO_ELEMENTS, run
from tilewise.ladder.rungs import Rung, left_out, rungs_of, tile_each

# One thread does about 10^5 multiply-adds a second on the emulator, and 10^7 on a GPU.
SINGLE_THREAD_EDGE = {"emulator": 32, "gpu": 256}


@dataclass(frozen=True)
class Climb:
    """Every rung of the ladder on one problem.

    Attributes
    ----------
    m, n, k : int
        The sizes: C is m x n, A is m x k, B is k x n.
    dtype : str or None
        The dtype, for the rungs that take it; None to run every rung with its first dtype.
    tile : int or None
        The tile, for the rungs that take it; the others use their own, as all do for None.
    device : Device
    seed : int
        The seed of the random matrices.
    """

    m: int
    n: int
    k: int
    dtype: str | None
    tile: int | None
    device: Device
    seed: int = 0

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The rungs that take the dtype, and that the device can run."""
        return tuple(each for each in rungs_of(self.dtype) if each.runs_on(self.device.arch))

    def size(self, rung: Rung) -> tuple[tuple[int, int, int], str]:
        """Return the size that ``rung`` is run at, and why it is not the problem's own."""
        m, n, k = self.m, self.n, self.k
        most = rung.most_elements
        if most is not None and m * n > most:
            columns = min(n, max(rung.default_size, most // m))
            rows = min(m, most // columns)
            return (rows, columns, k), f"one block holds {most:,} elements of C"
        edge = SINGLE_THREAD_EDGE[self.device.name]
        if rung.name == "single_thread" and m * n * k > edge**3:
            return (min(m, edge), min(n, edge), min(k, edge)), "it is too slow for more"
        return (m, n, k), ""

    def tile_of(self, rung: Rung) -> int | None:
        """Return the tile that ``rung`` is run with; None if it has none.

        Raises
        ------
        TypeError, ValueError
            If ``tile`` is not a tile of any rung.
        """
        return tile_each(self.tile)[rung.name]

    def tile_note(self, rung: Rung) -> str:
        """Return why ``rung`` is not run with the tile that is asked for; empty if it is."""
        if not rung.tiles or self.tile is None or self.tile in rung.tiles:
            return ""
        return f"it takes {listed(rung.tiles)}"

    @property
    def notes(self) -> list[str]:
        """Remarks on a product with nothing to multiply, and on rungs that are left out."""
        if not self.m or not self.n:
            return [NO_ELEMENTS]
        nothing = "k is 0: every element of C is an empty sum, 0, and there is nothing to load"
        return [nothing] * (self.k == 0) + left_out(self.device.arch, self.dtype)

    def run(self, step: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
        """Run every rung.

        Parameters
        ----------
        step : callable
            A function that is called with the name of each rung before it runs.

        Returns
        -------
        dict
            ``m``, ``n``, ``k``, ``dtype`` (None where each rung has its own), ``device``,
            ``arch``, ``seed``, ``correct`` (of all), ``notes``, and ``rungs``: each rung's result
            as ``RunResult.to_dict`` has it, with ``rung`` (number), ``idea``, ``lesson``,
            ``size_note`` and ``tile_note``; or, of a rung whose launch failed, ``error``.

        Raises
        ------
        ValueError
            If the problem or the tile is invalid.
        LaunchError
            If the device can run none of the rungs that take the dtype.
        """
        if not self.rungs:
            why = "; ".join(left_out(self.device.arch, self.dtype))
            raise LaunchError(f"no rung of {self.dtype}: {why}")
        for rung in self.rungs:  # a bad tile raises an error before the first rung's work
            self.tile_of(rung)
        rows = [self._row(rung, step) for rung in self.rungs]
        return {
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "dtype": self.dtype,
            "device": self.device.name,
            "arch": self.device.arch,
            "seed": self.seed,
            "correct": all(row["correct"] for row in rows),
            "notes": self.notes,
            "rungs": rows,
        }

    def _row(self, rung: Rung, step: Callable[[str], None]) -> dict[str, Any]:
        step(rung.name)
        (m, n, k), note = self.size(rung)
        a, b, _ = random_problem(m, n, k, rung.dtype(self.dtype), self.seed)
        row: dict[str, Any] = {
            "rung": rung.number,
            "kernel": rung.name,
            "idea": rung.idea,
            "lesson": rung.lesson,
            "size_note": note,
            "tile_note": self.tile_note(rung),
        }
        try:
            result = run(rung, a, b, tile=self.tile_of(rung), device=self.device)
        except (CheckError, LaunchError) as error:
            tile = self.tile_of(rung)
            return {
                **row, "m": m, "n": n, "k": k, "dtype": rung.dtype(self.dtype), "tile": tile,
                "correct": False, "error": str(error),
            }  # fmt: skip
        return {**row, **result.to_dict()}
