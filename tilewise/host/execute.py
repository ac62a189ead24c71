"""Carry out a plan: copies in, kernels and copies out, each as soon as what it needs is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeGuard

from tilewise.host.copying import Here, Loader, Storer, StorerThread, directly, part_size
from tilewise.host.lane import Lane, Stream
from tilewise.host.matrices import HostMatrix
from tilewise.host.order import Done, Order
from tilewise.host.plan import Compute, CopyIn, CopyOut, HostPlan, HostProblem, Step

INLINE = 1 << 20
"""Bytes to and from the GPU up to which the calling thread copies all of it by itself."""

Progress = Callable[[int, int], None]


_OTHER = {Stream.COMPUTE: Stream.COMPUTE_TOO, Stream.COMPUTE_TOO: Stream.COMPUTE}


class Matrices(NamedTuple):
    """The matrices of a product in the host's memory; C only where it is read."""

    a: HostMatrix
    b: HostMatrix
    c: HostMatrix | None
    d: HostMatrix


class Launcher(Protocol):
    """What turns a step into launches."""

    def workspace(self, plan: HostPlan) -> int:
        """Return the bytes of the GPU's memory that each of a plan's products may need besides."""
        ...

    def launch(self, step: Compute, stream: Stream, base: int, workspace: int) -> None:
        """Launch a product whose regions begin at ``base``."""
        ...


class Threads(NamedTuple):
    """Where the threads come from.

    Attributes
    ----------
    executor : callable
        Returns the threads that copy.
    workers : int
        How many they are.
    current : callable
        A context manager that makes the GPU's context the calling thread's.
    """

    executor: Callable[[], Any]
    workers: int
    current: Callable[[], AbstractContextManager[Any]]


def execute(
    plan: HostPlan,
    problem: HostProblem,
    matrices: Matrices,
    lane: Lane,
    launcher: Launcher,
    threads: Threads,
    progress: Progress | None = None,
) -> None:
    """Carry out a plan's steps; return when D is in the host's memory.

    Parameters
    ----------
    plan : HostPlan
    problem : HostProblem
    matrices : Matrices
    lane : Lane
    launcher : Launcher
    threads : Threads
    progress : callable, optional
        Called with the multiply-adds that are enqueued, and with those that there are.

    Raises
    ------
    MemoryError
        If the GPU has not enough memory; nothing is written then.
    LaunchError
        If a kernel failed.
    """
    workspace = launcher.workspace(plan)
    try:
        base = lane.allocate(plan.memory + 2 * workspace)
        run = _Run(plan, problem, matrices, lane, launcher, base, workspace)
        run.all(threads, progress)
    finally:
        lane.release()


class _Run:
    """One product under way."""

    def __init__(
        self,
        plan: HostPlan,
        problem: HostProblem,
        matrices: Matrices,
        lane: Lane,
        launcher: Launcher,
        base: int,
        workspace: int,
    ) -> None:
        self._plan, self._problem, self._lane, self._launcher = plan, problem, lane, launcher
        self._matrices = {"A": matrices.a, "B": matrices.b, "C": matrices.c}
        self._target = matrices.d
        self._by_rows = {"A": problem.a.by_rows, "B": problem.b.by_rows, "C": problem.d.by_rows}
        self._base, self._workspace = base, workspace
        self._order = Order(lane)
        self._stream = Stream.COMPUTE

    def all(self, threads: Threads, progress: Progress | None) -> None:
        """Do every step."""
        total = self._plan.bytes_in + self._plan.bytes_out
        inline = total <= INLINE
        executor = Here() if inline else threads.executor()
        part = part_size(total, threads.workers)
        staged = filter(self._is_staged, self._plan.steps())
        loader = Loader(self._lane, executor, staged, self._piece, part)
        storer = Storer(
            self._lane, executor, self._target, self._problem.d.by_rows, part
        )  # fmt: skip
        thread = None if inline else StorerThread(storer, self._base, threads.current)
        try:
            for step in self._followed(progress):
                if isinstance(step, CopyIn):
                    self._copy_in(step, loader)
                elif isinstance(step, Compute):
                    self._compute(step)
                else:
                    self._copy_out(step, storer, thread)
            (storer if thread is None else thread).finish()
        except BaseException:
            loader.cancel()
            (storer if thread is None else thread).cancel()
            raise

    def _followed(self, progress: Progress | None) -> Iterator[CopyIn | Compute | CopyOut]:
        if progress is None:
            yield from self._plan.steps()
            return
        p = self._problem
        done, total = 0, p.batch * p.m * p.n * p.k
        for step in self._plan.steps():
            yield step
            if isinstance(step, Compute):
                done += step.batch * step.m * step.n * step.k
                progress(done, total)

    def _is_staged(self, step: Step) -> TypeGuard[CopyIn]:
        return isinstance(step, CopyIn) and _has_elements(step) and not self._direct(step)

    def _direct(self, step: CopyIn) -> bool:
        matrix = self._matrices[step.matrix]
        assert matrix is not None
        return matrix.goes_directly(self._by_rows[step.matrix])

    def _piece(self, step: CopyIn) -> Any:
        matrix = self._matrices[step.matrix]
        assert matrix is not None
        return matrix.piece(step.batch, step.rows, step.columns, self._by_rows[step.matrix])

    def _copy_in(self, step: CopyIn, loader: Loader) -> None:
        if not _has_elements(step):
            return
        self._order.before(Stream.INWARD, writes=step.to.cells)
        address = self._base + step.to.offset
        if self._direct(step):
            for ahead, host, host_pitch, shape in directly(self._piece(step), step.to):
                self._lane.copy_in(address + ahead, step.to.pitch, host, host_pitch, shape)
        else:
            loader.load(address, step.to.pitch)
        done = Done(Stream.INWARD, self._lane.record(Stream.INWARD))
        self._order.after(done, writes=step.to.cells)

    def _compute(self, step: Compute) -> None:
        reads = step.a.cells + step.b.cells
        writes = step.d.cells + (() if step.result is None else step.result.cells)
        if step.is_first:
            self._stream = _OTHER[self._stream]
        stream = self._stream
        self._order.before(stream, reads, writes)
        workspace = self._base + self._plan.memory
        if stream is Stream.COMPUTE_TOO:
            workspace += self._workspace
        self._launcher.launch(step, stream, self._base, workspace)
        self._order.after(Done(stream, self._lane.record(stream)), reads, writes)

    def _copy_out(self, step: CopyOut, storer: Storer, thread: StorerThread | None) -> None:
        computed = self._order.writing(step.source.cells)
        if thread is None:
            done = Done(Stream.OUTWARD, storer.store(step, self._base, computed))
        else:
            done = thread.store(step, computed)
        self._order.after(done, reads=step.source.cells)


def _has_elements(step: CopyIn) -> bool:
    return bool(step.batch.size and step.rows.size and step.columns.size)
