"""Carry out a plan: copies in, kernels and copies out, each as soon as its inputs are there."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple, Protocol, TypeGuard

from tilewise.host.channel import BUFFER, LEAST_BUFFER, Channel, Kind, Stream, released
from tilewise.host.copying import Helpers, Loader, Storer, StorerThread, directly
from tilewise.host.dependencies import Completion, Dependencies
from tilewise.host.matrices import Array, HostMatrix
from tilewise.host.plan import Compute, CopyIn, CopyOut, HostPlan, Step

DIRECT = 1
"""The index of the stream for copies from and to pinned matrices; 0 is that of buffers."""
COMPUTE_STREAMS = 2
"""The number of kernel streams: a product's last blocks overlap the next one's first."""

BUFFERS_FULL = 12
"""The least number of times that a product fills a buffer; buffers are made small enough."""


class Matrices(NamedTuple):
    """The matrices of a product in the host's memory; C is None unless it is read."""

    a: HostMatrix
    b: HostMatrix
    c: HostMatrix | None
    d: HostMatrix

    def piece(self, step: CopyIn | CopyOut) -> Array:
        """Return the view of a step's piece: (batch, lines, elements of a line)."""
        matrix, by_rows = self._of(step)
        return matrix.piece(step.batch, step.rows, step.columns, by_rows)

    def goes_directly(self, step: CopyIn | CopyOut) -> bool:
        """Return whether the driver copies a step's piece from or to its place on the host."""
        matrix, by_rows = self._of(step)
        return matrix.goes_directly(by_rows)

    def _of(self, step: CopyIn | CopyOut) -> tuple[HostMatrix, bool]:
        """Return a step's matrix, and whether its lines on the GPU are rows; C lies there as D."""
        name = step.matrix if isinstance(step, CopyIn) else "D"
        found = {"A": self.a, "B": self.b, "C": self.c, "D": self.d}[name]
        assert found is not None
        return found, (self.d if name == "C" else found).layout.by_rows


class Launcher(Protocol):
    """The interface of a plan whose products can be launched.

    Attributes
    ----------
    plan : HostPlan
    workspace : int
        The bytes of workspace on the GPU that each of the plan's products may need.
    """

    plan: HostPlan
    workspace: int

    def launch(
        self, step: Compute, channel: Channel, stream: Stream, base: int, workspace: int
    ) -> None:
        """Launch a product whose regions begin at the address ``base``."""
        ...


def execute(
    launcher: Launcher, matrices: Matrices, channel: Channel, base: int, helpers: Helpers
) -> None:
    """Carry out a plan's steps; return when D is in the host's memory.

    Parameters
    ----------
    launcher : Launcher
        The plan and its prepared launches.
    matrices : Matrices
    channel : Channel
    base : int
        The address of the channel's allocation. It begins with the plan's regions, and a workspace
        for each stream of kernels follows. The channel releases it at the end.
    helpers : Helpers

    Raises
    ------
    MemoryError
        If memory can't be pinned.
    LaunchError
        If a kernel failed.
    """
    with released(channel):
        _Run(launcher, matrices, channel, base).all(helpers)


class _Run:
    """The state of one product while it is carried out."""

    def __init__(self, launcher: Launcher, matrices: Matrices, channel: Channel, base: int) -> None:
        self._launcher, self._plan, self._matrices = launcher, launcher.plan, matrices
        self._channel, self._base = channel, base
        self._has_pieces = _are_several(self._plan, CopyOut)
        self._overlaps = _are_several(self._plan, Compute)
        self._dependencies = Dependencies()
        self._turn = 0

    def all(self, helpers: Helpers) -> None:
        """Carry out every step."""
        matrices, copiers, most = self._matrices, helpers.copiers, self._buffer_size()
        staged = filter(self._is_staged, self._plan.steps())
        stream = self._stream(Kind.INWARD)
        loader = Loader(self._channel, stream, self._base, staged, matrices.piece, most, helpers)
        is_direct = matrices.d.goes_directly(matrices.d.layout.by_rows)
        stream = self._stream(Kind.OUTWARD, DIRECT if is_direct else 0)
        unthreaded = Storer(
            self._channel, stream, self._base, matrices.piece, is_direct, most, copiers
        )
        storer: Storer | StorerThread = unthreaded
        try:
            if not is_direct and self._has_pieces:
                storer = StorerThread(unthreaded, helpers.current)
            for step in self._plan.steps():
                if isinstance(step, CopyIn):
                    self._copy_in(step, loader)
                elif isinstance(step, Compute):
                    self._compute(step)
                else:
                    self._copy_out(step, storer)
            loader.finish()
            storer.finish()
        except BaseException:
            try:
                loader.cancel()
            finally:
                storer.cancel()
            raise

    def _buffer_size(self) -> int:
        """Return the bytes of a buffer, small enough for several buffers to have work."""
        share = (self._plan.bytes_in + self._plan.bytes_out) // BUFFERS_FULL
        return min(BUFFER, max(LEAST_BUFFER, 1 << share.bit_length() >> 1))

    def _stream(self, kind: Kind, index: int = 0) -> Stream:
        """Return the stream for this; if nothing overlaps, one stream is for everything."""
        return self._channel.stream(*((kind, index) if self._overlaps else (Kind.COMPUTE, 0)))

    def _is_staged(self, step: Step) -> TypeGuard[CopyIn]:
        return (
            isinstance(step, CopyIn)
            and _has_elements(step)
            and not self._matrices.goes_directly(step)
        )

    def _copy_in(self, step: CopyIn, loader: Loader) -> None:
        if not _has_elements(step):
            return
        is_direct = self._matrices.goes_directly(step)
        stream = self._stream(Kind.INWARD, DIRECT if is_direct else 0)
        waits = self._dependencies.before(stream, writes=step.to.cells)
        if is_direct:
            at = self._base + step.to.offset
            for event in waits:
                self._channel.wait(stream, event)
            for ahead, host, host_pitch, shape in directly(self._matrices.piece(step), step.to):
                self._channel.copy_in(stream, at + ahead, step.to.pitch, host, host_pitch, shape)
            done = self._done(stream)
        else:
            done = loader.load(step.to, waits)
        self._dependencies.after(done, writes=step.to.cells)

    def _compute(self, step: Compute) -> None:
        reads = step.a.cells + step.b.cells
        writes = step.d.cells + (() if step.result is None else step.result.cells)
        if step.is_first:
            self._turn = (self._turn + 1) % COMPUTE_STREAMS
        stream = self._stream(Kind.COMPUTE, self._turn)
        for event in self._dependencies.before(stream, reads, writes):
            self._channel.wait(stream, event)
        workspace = self._base + self._plan.memory + self._turn * self._launcher.workspace
        self._launcher.launch(step, self._channel, stream, self._base, workspace)
        self._dependencies.after(self._done(stream), reads, writes)

    def _done(self, stream: Stream) -> Completion:
        """Return the completion of the last step on a stream."""
        return Completion([self._channel.record(stream)] if self._overlaps else (), stream)

    def _copy_out(self, step: CopyOut, storer: Storer | StorerThread) -> None:
        waits = self._dependencies.before(None, reads=step.source.cells)
        self._dependencies.after(storer.store(step, waits), reads=step.source.cells)


def _are_several(plan: HostPlan, kind: type[Step]) -> bool:
    """Return whether a plan has more than one step of a kind."""
    return len(list(islice((x for x in plan.steps() if isinstance(x, kind)), 2))) > 1


def _has_elements(step: CopyIn) -> bool:
    return bool(step.batch.size and step.rows.size and step.columns.size)
