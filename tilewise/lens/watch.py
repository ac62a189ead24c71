"""``tilewise.watch``: a kernel's run as a page, in a notebook's cell or in a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import getfullargspec, unwrap
from typing import Any, Never

from tilewise.devices.arguments import bind
from tilewise.devices.emulated import emulator
from tilewise.devices.emulator import Emulator, EmulatorArray
from tilewise.errors import CheckError, RaceError
from tilewise.exercises.cases import Case
from tilewise.kernel import Kernel
from tilewise.ladder.prepared import arch_of, check_sizes, dtype_of, kernel_of
from tilewise.ladder.problem import random_problem
from tilewise.ladder.run import RunResult, run
from tilewise.ladder.rungs import Rung
from tilewise.ladder.signature import refuse_launch
from tilewise.ladder.untouched import Untouched
from tilewise.ladder.verdict import Verdict
from tilewise.ladder.watched import sizes
from tilewise.launch import Launch, dim3, each_of
from tilewise.launchable import Launchable
from tilewise.lens.beside import Beside
from tilewise.lens.paged import Paged
from tilewise.lens.player import page
from tilewise.lens.profiling import SMALL
from tilewise.lens.trace import Trace, record, record_args, record_launch
from tilewise.lens.traced_arrays import put
from tilewise.lens.wrong import compare_arrays, wrong_elements
from tilewise.numbers import Check
from tilewise.places import Dim3
from tilewise.specs.arguments import names_of
from tilewise.specs.expected import Compared
from tilewise.specs.run import Prepared
from tilewise.specs.run import launch as launch_prepared
from tilewise.tracebacks import front_door

FEW = 1 << 14  # threads of a launch that is run whole, to see whether a check finds a fault


@dataclass(frozen=True)
class Watch(Paged):
    """A recorded run.

    Attributes
    ----------
    trace : Trace
    page : str
        The whole page, which needs no network and no server.
    check : Check or None
        The check of the whole product against float64; None if it is too large to be run whole.
    untouched : Untouched or None
        The elements of C that the kernel did not change; None if none is known.
    compared : tuple of Compared
        The comparisons of a launch's arrays with their expected values; empty if none is expected.
    races : RaceError or None
        The races in global memory that a test of an exercise has; None if it has none.
    """

    trace: Trace
    check: Check | None = None
    untouched: Untouched | None = None
    compared: tuple[Compared, ...] = ()
    races: RaceError | None = None

    @property
    def fault(self) -> CheckError | None:
        """The error of the fault at which the page ends, or :attr:`races`; None if there is none.

        Races in global memory are found when the launch has ended: the page does not end at them.
        """
        return self.trace.fault or self.races

    @property
    def verdict(self) -> Verdict | None:
        """Whether the product is correct, and what is wrong with it; None if it is not checked."""
        return None if self.check is None else Verdict(self.check, self.untouched)

    @property
    def correct(self) -> bool:
        """Whether no check found a fault and the result is not known to be wrong."""
        is_right = self.verdict is None or self.verdict.correct
        return self.fault is None and is_right and all(each.correct for each in self.compared)

    def beside(self, other: Watch) -> Beside:
        """Show this run beside another, in step by the work that each has done.

        The clock is the share of its block's multiply-adds that each has done. For a kernel without
        any, it is the share of its operations, or of the elements that it stores. Steps and
        instructions can't be the clock, because kernels differ in them. The totals of their costs
        are compared at the ends of the phases of either.

        Parameters
        ----------
        other : Watch
            The run of any kernel, preferably one of the same product. The first recorded block of
            the one is shown beside the first of the other, and so on.

        Returns
        -------
        Beside
            In Jupyter it shows itself; ``.save("FILE.html")`` keeps it.

        Examples
        --------
        >>> import tilewise
        >>> naive, tiled = (tilewise.watch(name, 8, 8, 8, tile=4) for name in ("naive", "tiled"))
        >>> pair = naive.beside(tiled)
        >>> pair.correct, pair.page.startswith("<!doctype html>")
        (True, True)
        """
        return Beside.of(self, other)

    def __repr__(self) -> str:
        found = {None: "", True: ", right", False: ", WRONG"}[
            None if self.check is None and not self.compared else self.correct
        ]
        if self.fault is not None:
            found = f", FAULT: {self.fault}"
        kernel = self.trace.to_dict()["kernel"]
        size = f"{len(self.page.encode()):,} bytes"
        return f"<watch {kernel}{found}: {size}; .save(path) writes the page>"


@front_door
def watch(
    target: str | Rung | Kernel,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    *,
    dtype: str | None = None,
    tile: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    blocks: Sequence[Dim3] = (),
    seed: int = 0,
    arch: str | None = None,
    **launch: Never,
) -> Watch:
    """Run some blocks of a product on the emulator, and show what they do, step by step.

    In Jupyter the result shows itself; ``.save("FILE.html")`` keeps it.

    Parameters
    ----------
    target : str, Rung or Kernel
        The target, as in :func:`tilewise.profile`.
    m, n, k, tile : int, optional
        The sizes: C is m x n, A is m x k. By default they are large enough to show what the rung is
        about (:mod:`tilewise.ladder.watched`).
    dtype : str, optional
        The dtype, as in :func:`tilewise.profile`.
    alpha, beta : float
    blocks : sequence of (int, int, int)
        The blocks to show, x first; by default the first of the grid and the last.
    seed : int
        The seed of the random matrices.
    arch : str, optional
        The architecture to compile for and to emulate, as in ``"sm_80"``.

    Returns
    -------
    Watch
        The recording, with the check of the whole product if that is small. If a check of the
        emulator finds a fault, the page ends there, and :attr:`Watch.fault` holds the error.

    Raises
    ------
    FileNotFoundError
        If the target's file does not exist.
    CompileError, LaunchError
        If the kernel does not compile, or can't be launched.
    CheckError
        If a check finds a fault of a block that is not there when the block runs by itself.
    ValueError
        If there is no such rung, or a size, a tile or a block is not one that it takes.
    TypeError
        If the kernel does not take a product's matrices, or an argument is of another type.

    Examples
    --------
    >>> import tilewise
    >>> found = tilewise.watch("tiled", 8, 8, 8, tile=4)
    >>> found.correct, found.page.startswith("<!doctype html>")
    (True, True)
    """
    refuse_launch("watch", launch, getfullargspec(unwrap(watch)).kwonlyargs)
    kernel = kernel_of(target)
    if isinstance(kernel, Kernel):
        check_sizes(m, n, k)
    arch, dtype = arch_of(kernel, arch), dtype_of(kernel, dtype)
    at = sizes(kernel, m, n, k, tile, dtype)

    def recorded(blocks: Sequence[Dim3]) -> Trace:
        return record(
            kernel, at.m, at.n, at.k, dtype=dtype, tile=at.tile, alpha=alpha, beta=beta,
            blocks=blocks, seed=seed, arch=arch, stops_at_fault=True,
        )  # fmt: skip

    def whole() -> tuple[RunResult, dict[str, Any] | None]:
        a, b, drawn = random_problem(at.m, at.n, at.k, dtype, seed)
        c = drawn if beta else None
        found = run(kernel, a, b, c, alpha=alpha, beta=beta, tile=at.tile, device=emulator(arch))
        if found.correct:
            return found, None
        left = found.untouched
        unwritten = left.elements if left is not None and left.is_certain else None
        return found, wrong_elements(found.result, a, b, c, alpha, beta, unwritten)

    trace, found = _seen(recorded, blocks, whole, lambda threads: threads * at.k <= SMALL)
    if found is None:
        return Watch(page(trace.to_dict()), trace)
    result, wrong = found
    if wrong is not None:
        trace = replace(trace, data={**trace.data, "wrong": wrong})
    return Watch(page(trace.to_dict()), trace, result.check, result.untouched)


def _are_few(threads: int) -> bool:
    return threads <= FEW


def _seen(
    recorded: Callable[[Sequence[Dim3]], Trace],
    blocks: Sequence[Dim3],
    whole: Callable[[], Any],
    is_small: Callable[[int], bool],
) -> tuple[Trace, Any]:
    """Return the trace of some blocks, and the result of the whole launch, or None.

    If the whole launch has a fault in another block, that block is recorded instead.

    Parameters
    ----------
    recorded, whole : callable
    blocks
        As :func:`tilewise.lens.trace.record` takes them.
    is_small : callable
        Whether a launch of so many threads is run whole; it is not if a recorded block is cut.

    Raises
    ------
    CheckError
        If a fault does not occur again when its block is recorded by itself.
    """
    try:
        trace = recorded(blocks)
        data = trace.to_dict()
        threads = math.prod((*data["grid"], *data["block"]))
        is_cut = any(each["cut"] for each in data["blocks"])
        if trace.fault is not None or is_cut or not is_small(threads):
            return trace, None
        return trace, whole()
    except CheckError as error:
        block = error.findings[-1].block
        trace = recorded([block] if block else blocks)
        if trace.fault is None:
            raise
        return trace, None


def watch_launch(prepared: Prepared, *, blocks: Sequence[Dim3] = ()) -> Watch:
    """Run some blocks of any launch on the emulator, and show what they do, step by step.

    Parameters
    ----------
    prepared : Prepared
        The launch, as :func:`tilewise.specs.run.prepare` returns it.
    blocks
        The blocks, as in :func:`tilewise.lens.trace.record`.

    Returns
    -------
    Watch
        The recording, without a check. A small launch is also run whole, so that faults of other
        blocks are found.

    Raises
    ------
    LaunchError, CheckError, OSError, MemoryError, ValueError, TypeError
    """
    trace, _ = _seen(
        lambda blocks: record_launch(prepared, blocks=blocks, stops_at_fault=True), blocks,
        lambda: launch_prepared(prepared, device=emulator(prepared.compiled.arch)), _are_few,
    )  # fmt: skip
    return Watch(page(trace.to_dict()), trace)


def watch_case(kernel: Kernel, case: Case, *, blocks: Sequence[Dim3] = ()) -> Watch:
    """Run some blocks of an exercise's test on the emulator, and show what they do, step by step.

    Parameters
    ----------
    kernel : Kernel
        The submission's kernel.
    case : Case
        The test's launch and expected values, from :func:`tilewise.exercises.cases.make`.
    blocks
        The blocks, as in :func:`tilewise.lens.trace.record`.

    Returns
    -------
    Watch
        The recording, with the test's arrays compared; the page marks elements that are wrong.
        Races in global memory are looked for as they are for a grade.

    Raises
    ------
    CompileError, LaunchError, CheckError, MemoryError, ValueError, TypeError
    """
    compiled = kernel.compile()

    def fresh() -> tuple[Emulator, Launch]:
        place = Emulator(compiled.arch)
        module = kernel.variables.for_a_look(place, compiled)
        return place, Launch(
            case.grid, case.block, case.args_on(place), case.shared, limits=kernel.limits,
            module=module,
        )  # fmt: skip

    def recorded(blocks: Sequence[Dim3]) -> Trace:
        place, launch = fresh()
        return record_args(
            place, kernel, compiled, launch, case.names, blocks, stops_at_fault=True
        )  # fmt: skip

    def whole() -> tuple[dict[str, EmulatorArray], RaceError | None]:
        place, launch = fresh()
        args, arrays = put(place, launch.args, case.names)
        place.launch(compiled, replace(launch, args=args))
        # Without a fault so far, what is found now are races in global memory.
        again, launch = fresh()
        args, _ = put(again, launch.args, case.names)
        launch = replace(launch, args=args, checks="collect", global_races=True, counts=False)
        races = again.launch(compiled, launch).findings
        return {name: there for name, there, _ in arrays}, RaceError(races) if races else None

    trace, found = _seen(recorded, blocks, whole, lambda threads: True)
    if found is None:
        return Watch(page(trace.to_dict()), trace)
    arrays, races = found
    compared, wrong = compare_arrays(case.expected, arrays)
    if wrong is not None:
        trace = replace(trace, data={**trace.data, "wrong": wrong})
    return Watch(page(trace.to_dict()), trace, compared=compared, races=races)


def watch_args(
    kernel: Launchable,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    *,
    shared: int = 0,
    blocks: Sequence[Dim3] = (),
    arch: str | None = None,
    cooperative: bool = False,
) -> Watch:
    """Run some blocks of a launch with NumPy's arrays, and show what they do, step by step.

    Parameters
    ----------
    kernel, grid, block, args, shared, blocks, arch, cooperative
        The arguments of :meth:`tilewise.Kernel.watch`.

    Raises
    ------
    CompileError, LaunchError, CheckError, MemoryError, ValueError, TypeError
    """
    compiled = kernel.compile(arch or kernel.arch)
    launch = Launch(
        dim3(grid, "grid"), dim3(block, "block"), each_of(args), shared, limits=kernel.limits,
        cooperative=cooperative,
    )  # fmt: skip
    bind(compiled.name, compiled.parameters, launch.args)  # raises the errors of a launch
    names = names_of(compiled)

    def fresh() -> tuple[Emulator, Launch]:
        place = Emulator(compiled.arch)
        return place, replace(launch, module=kernel.variables.for_a_look(place, compiled))

    def recorded(blocks: Sequence[Dim3]) -> Trace:
        place, looked = fresh()
        return record_args(place, kernel, compiled, looked, names, blocks, stops_at_fault=True)

    def whole() -> None:
        place, looked = fresh()
        place.launch(compiled, replace(looked, args=put(place, looked.args, names)[0]))

    trace, _ = _seen(recorded, blocks, whole, _are_few)
    return Watch(page(trace.to_dict()), trace)
