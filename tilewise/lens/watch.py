"""``tilewise.watch``: a kernel's run as a page, in a notebook's cell or in a file."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewise.kernel import Kernel
from tilewise.ladder.rungs import Rung
from tilewise.launch import Dim3
from tilewise.lens.player import page
from tilewise.lens.trace import Trace, record
from tilewise.provenance import write_whole
from tilewise.tracebacks import front_door

CELL_PIXELS = 840  # of a notebook's cell, its height


@dataclass(frozen=True)
class Watch:
    """A recorded run.

    Attributes
    ----------
    trace : Trace
    page : str
        The whole page: it needs no network and no server.
    """

    trace: Trace
    page: str

    def save(self, path: str | Path) -> Path:
        """Write the page, whole or not at all.

        Raises
        ------
        OSError
            If it can't be written.
        """
        write_whole(Path(path), self.page.encode())
        return Path(path)

    def _repr_html_(self) -> str:
        """What Jupyter shows: the page in a frame of its own."""
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" title="tilewise watch" '
            f'style="width: 100%; height: {CELL_PIXELS}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        kernel = self.trace.to_dict()["kernel"]
        return f"<watch {kernel}: {len(self.page.encode()):,} bytes; .save(path) writes the page>"


@front_door
def watch(
    target: str | Rung | Kernel,
    m: int = 12,
    n: int = 12,
    k: int = 12,
    *,
    dtype: str = "float32",
    tile: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    blocks: Sequence[Dim3] = (),
    seed: int = 0,
) -> Watch:
    """Run some blocks of a product on the emulator, and show what they do, step by step.

    In Jupyter the result shows itself; ``.save("FILE.html")`` keeps it.

    Parameters
    ----------
    target, m, n, k, dtype, tile, alpha, beta, blocks, seed
        As :func:`tilewise.lens.trace.record` takes them.

    Raises
    ------
    FileNotFoundError, CompileError, LaunchError, CheckError, ValueError, TypeError
    """
    trace = record(
        target, m, n, k, dtype=dtype, tile=tile, alpha=alpha, beta=beta, blocks=blocks, seed=seed
    )
    return Watch(trace, page(trace.to_dict()))
