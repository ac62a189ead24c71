"""The command ``tilewise profile``: what a kernel does to memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock, Timer
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewise.cli.commands.launches import (
    Args,
    Asked,
    Block,
    Cast,
    Cooperative,
    Grid,
    Shared,
    advising,
)
from tilewise.cli.commands.options import (
    RIGHT,
    WRONG,
    Arch,
    Json,
    K,
    M,
    N,
    OwnDtype,
    Tile,
    print_json,
    rungs,
)
from tilewise.cli.commands.sources import (
    Define,
    Include,
    Limit,
    NoLimits,
    Trusted,
    Undefine,
    source,
)

if TYPE_CHECKING:
    from tilewise.kernel import Kernel
    from tilewise.ladder.rungs import Rung
    from tilewise.launch import Finding
    from tilewise.lens.profile import Profile

PATIENCE = 2.0
"""The seconds after which a run of every block is announced on standard error."""
STUCK = 5.0
"""The seconds after which it is told on standard error that the first blocks have not ended."""


class _SlowRunNotice:
    """Say on standard error that every block is run, or that the first blocks do not end.

    The first is printed after PATIENCE, once. The second is printed STUCK after a launch began,
    with the first finding, which may be the reason; if that is found later, it is printed then.

    Parameters
    ----------
    target : str
        The kernel's name on the command line.
    size_advice : str
        A clause that says how the user can have fewer blocks.
    stop_advice : str
        A clause that says what stops the run.
    bar : callable or None
        A function that shows the progress: the number of blocks that are done, and of all blocks.
    """

    def __init__(
        self,
        target: str,
        size_advice: str,
        stop_advice: str,
        bar: Callable[[int, int], None] | None,
    ) -> None:
        self.target, self.bar = target, bar
        self.size_advice, self.stop_advice = size_advice, stop_advice
        self.why, self.begun = "", 0.0
        self.first: Finding | None = None
        self.is_stuck = False
        self.steps = 0  # changes when blocks have ended, so that an older timer prints nothing
        self.timer: Timer | None = None
        self.lock = Lock()  # the timer has its own thread

    def __enter__(self) -> _SlowRunNotice:
        return self

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self._step()

    def note(self, why: str) -> None:
        """Begin a run of every block, for a reason."""
        self.why, self.begun = why, time.monotonic()

    def found(self, finding: Finding) -> None:
        """Keep the first finding, and print it if the first blocks have not ended for long."""
        with self.lock:
            if self.first is None:
                self.first = finding
                if self.is_stuck:
                    self._print(f"found: {finding}; {self.stop_advice}")

    def progress(self, done: int, blocks: int) -> None:
        """Show the progress, and print the notice if it is due; a launch begins with 0 done."""
        with self.lock:
            self._step()
            if done == 0:
                self.timer = Timer(STUCK, self._tell_stuck, (self.steps,))
                self.timer.daemon = True
                self.timer.start()
        if self.bar is not None:
            self.bar(done, blocks)
        took = time.monotonic() - self.begun
        if not self.why or took < PATIENCE or done in (0, blocks):
            return
        self._print(
            f"every block is run ({self.why}): {done:,} of {blocks:,} took {took:.0f} s, and all "
            f"would take about {took * blocks / done:,.0f} s; {self.size_advice}, and "
            f"{self.stop_advice}"
        )
        self.why = ""

    def _step(self) -> None:
        self.steps += 1
        self.is_stuck = False
        if self.timer is not None:
            self.timer.cancel()

    def _tell_stuck(self, steps: int) -> None:
        """Print that the first blocks have not ended, unless they have since the timer began."""
        with self.lock:
            if steps != self.steps:
                return
            self.is_stuck = True
            found = "" if self.first is None else f"; found: {self.first}"
            self._print(
                f"the first blocks have not all ended after {STUCK:g} s{found}; {self.stop_advice}"
            )

    def _print(self, told: str) -> None:
        with suppress(OSError):
            print(f"tilewise: profiling {self.target}: {told}", file=sys.stderr)


def _stop_advice(kernel: Kernel | Rung) -> str:
    """Return what stops a run, as a clause."""
    from tilewise.ladder.rungs import Rung

    if isinstance(kernel, Rung):
        return "Ctrl-C stops it"
    seconds = None if kernel.limits is None else kernel.limits.seconds
    now = "" if seconds is None else f" (now after {seconds:g} s)"
    return f"--limit seconds=MOST stops it{now}"


def profile(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="RUNG|FILE.cu:NAME|FILE.ptx:NAME [...]",
            help="A rung of the ladder, or any kernel; two are compared.",
            autocompletion=rungs,
        ),
    ],
    m: M = None,
    n: N = None,
    k: K = None,
    tile: Tile = None,
    dtype: OwnDtype = None,
    alpha: Annotated[float, typer.Option(help="C = alpha A B + beta C.")] = 1.0,
    beta: Annotated[float, typer.Option(help="0 does not read C.")] = 0.0,
    arch: Arch = None,
    seed: Annotated[int, typer.Option(help="Of random matrices and arrays.")] = 0,
    grid: Grid = None,
    block: Block = None,
    args: Args = None,
    shared: Shared = "0",
    cast: Cast = False,
    cooperative: Cooperative = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Run every block, not one of each kind.")
    ] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="Show what each line of the source did, beside it.")
    ] = False,
    hardware: Annotated[
        bool,
        typer.Option(
            "--hardware", help="Count it with Nsight Compute on the GPU too, and compare."
        ),
    ] = False,
    include: Include = None,
    define: Define = None,
    undefine: Undefine = None,
    trusted: Trusted = False,
    limit: Limit = None,
    no_limits: NoLimits = False,
    as_json: Json = False,
) -> int:
    """Count what a kernel does to memory; it needs no GPU.

    The counts are the emulator's. Sizes that are not given are 64, or for single_thread
    and single_block 32, and fewer beside a larger one. Of blocks that do the same, one is run and
    multiplied.

    A kernel of any other signature is launched with --grid, --block and --args.
    """
    from tilewise.cli import show
    from tilewise.ladder.prepared import sizes_of
    from tilewise.lens import nsight
    from tilewise.lens.compare import against
    from tilewise.lens.profiling import check_product, profile_prepared
    from tilewise.lens.profiling import profile as profile_product

    if len(targets) > 2:
        raise ValueError(f"{len(targets)} kernels are named; one is profiled, or two are compared")
    kernels = [
        source(each, include, trusted, limit, no_limits, define, undefine) for each in targets
    ]  # fmt: skip
    asked = Asked(grid, block, args, shared, seed, cast, cooperative)
    counts: list[Callable[..., Profile]] = []
    if asked.is_there:
        of_a_product = {
            "-m": m is not None, "-n": n is not None, "-k": k is not None, "--tile": tile,
            "--dtype": dtype, "--alpha": alpha != 1, "--beta": beta,
        }  # fmt: skip
        for target, kernel in zip(targets, kernels, strict=True):
            own = asked.check(target, kernel, of_a_product)
            prepared = asked.prepared("profile", target, own, arch or own.arch)
            counts.append(partial(profile_prepared, prepared))
    else:
        # For two kernels, what both can do.
        sizes = [sizes_of(kernel, m, n, k) for kernel in kernels]
        rows, columns, depth = (min(each) for each in zip(*sizes, strict=True))
        product: dict[str, Any] = {
            "m": rows, "n": columns, "k": depth, "dtype": dtype,
            "tile": tile, "alpha": alpha, "beta": beta, "arch": arch,
        }  # fmt: skip
        # All of them first, so that an error in the second comes early.
        for target, kernel in zip(targets, kernels, strict=True):
            with advising("profile", target, kernel):
                check_product(kernel, **product)
            counts.append(partial(profile_product, kernel, **product, seed=seed))
    if hardware:
        nsight.require()
    found = []
    for target, kernel, count in zip(targets, kernels, counts, strict=True):
        size_advice = (
            f"a smaller {'--grid has' if asked.is_there else '-m and -n have'} fewer blocks"
        )
        with (
            show.counting(f"profiling {target}") as bar,
            _SlowRunNotice(target, size_advice, _stop_advice(kernel), bar) as slow,
        ):
            found.append(count(
                checks="collect", whole=whole, progress=slow.progress, note=slow.note,
                finding=slow.found,
            ))  # fmt: skip
    compared: list[Any] = []
    if hardware:
        with show.progress(None, "running ncu"):
            measured = nsight.measure([each.case for each in found])
        compared = [against(each, of_gpu) for each, of_gpu in zip(found, measured, strict=True)]
    if as_json:
        documents = [each.to_dict() for each in found]
        for document, compared_rows in zip(documents, compared, strict=False):
            document["hardware"] = [row.to_dict() for row in compared_rows]
        print_json(documents[0] if len(documents) == 1 else {"kernels": documents})
    else:
        if lines:
            for each in found:
                show.lines(each)
        elif len(found) == 1:
            show.profile(found[0])
        else:
            show.compared(found[0], found[1])
        for each, compared_rows in zip(found, compared, strict=False):
            print()
            show.hardware(compared_rows, each.kernel if len(found) > 1 else "")
    return RIGHT if all(each.correct for each in found) else WRONG
