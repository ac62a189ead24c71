"""Say what a step of a trace does, in one plain sentence, and why it matters."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.compiler.type_names import COMPONENTS
from tilewise.devices.emulator.counting.transactions import SECTOR
from tilewise.devices.emulator.recording.events import NOWHERE, Event
from tilewise.lens import asynchronous
from tilewise.places import Dim3
from tilewise.shown import element, index_of

WARP = 32
MBARRIER = 8  # bytes
PIECE = 16  # least bytes that bulk copies move
FLAT = 32  # columns in which an array of one dimension is drawn
MOST_RUNS = 3  # of rows or columns that a sentence names one by one
Words = tuple[str, str]


@dataclass(frozen=True)
class Place:
    """An array in global memory, as rows that are ``leading`` elements apart.

    Attributes
    ----------
    name : str
    pointer : int
    rows, columns, leading : int
    dtype : dtype
    said : str
        The name in sentences.
    extents : tuple of int
        The extent of each dimension in memory; the last is ``leading``. An array of one dimension
        has rows only in the drawing.
    count : int
        The number of elements; for a matrix, all from the first to the last.
    """

    name: str
    pointer: int
    rows: int
    columns: int
    leading: int
    dtype: np.dtype[Any]
    said: str
    extents: tuple[int, ...]
    count: int

    @classmethod
    def of_matrix(cls, name: str, array: Any, leading: int) -> Place:
        """Return the place of a product's matrix on the emulator, named by a capital letter."""
        rows, columns = array.shape
        return cls(
            name, array.pointer, rows, columns, leading, array.dtype, name.upper(),
            (rows, leading), leading * (rows - 1) + columns,
        )  # fmt: skip

    @classmethod
    def of(cls, name: str, array: Any) -> Place:
        """Return the place of a row-contiguous array on the emulator, its last dimension across.

        It counts as one of one dimension if its strides are not those of an array with longer rows.
        """
        steps = [stride // array.dtype.itemsize for stride in array.strides]
        extents = _in_memory(array.shape, steps)
        apart = sum((n - 1) * step for n, step in zip(array.shape, steps, strict=True))
        count = apart + 1 if math.prod(array.shape) else 0
        if len(extents) > 1:
            leading, columns = extents[-1], array.shape[-1]
            rows = apart // leading + 1 if count else math.prod(array.shape[:-1])
        else:
            extents = (count,)
            leading = columns = min(count, FLAT)
            rows = -(-count // columns) if columns else 0
        return cls(name, array.pointer, rows, columns, leading, array.dtype, name, extents, count)

    @property
    def is_flat(self) -> bool:
        return len(self.extents) == 1

    @property
    def element(self) -> int:
        """The bytes of an element."""
        return int(self.dtype.itemsize)

    def holds(self, address: npt.NDArray[np.int64]) -> bool:
        size = self.element * self.count
        return bool(((address >= self.pointer) & (address < self.pointer + size)).all())


def _in_memory(shape: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Return the extents of a row-contiguous array in memory, with the gaps between its rows.

    ``steps`` are its strides in elements. The result is empty if the array has fewer than two
    dimensions, or if no extents give its strides.
    """
    if len(shape) < 2 or 0 in shape:
        return tuple(shape) if len(shape) > 1 else ()
    extents: list[int] = []
    inner = 1
    for axis in range(len(shape) - 1, 0, -1):
        # An axis of one element may have any stride.
        outer = steps[axis - 1] if shape[axis - 1] > 1 else inner * shape[axis]
        if outer % inner or outer < inner * shape[axis]:
            return ()
        extents.insert(0, outer // inner)
        inner = outer
    return (shape[0], *extents)


@dataclass(frozen=True)
class Shared:
    """An array in shared memory.

    Attributes
    ----------
    name : str
    offset, bytes : int
    element : int
        The bytes of a value, which is a cell in the drawing: a component if elements are vectors.
    rows, columns : int
        Of the drawing; a column is one value wide.
    extents : tuple of int
        The extent of each dimension, in elements. An array of one dimension has rows only in the
        drawing.
    components : int
        The values of an element: 4 for ``float4``, and 1 for what is no vector.
    """

    name: str
    offset: int
    bytes: int
    element: int
    rows: int
    columns: int
    extents: tuple[int, ...]
    components: int = 1

    @property
    def is_flat(self) -> bool:
        return len(self.extents) == 1

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found = asdict(self)
        extents, components = list(found.pop("extents")), found.pop("components")
        found |= {"flat": True} if self.is_flat else {"extents": extents}
        return found | ({"components": components} if components > 1 else {})


@dataclass(frozen=True)
class Scene:
    """The arrays and the block that sentences are about.

    Attributes
    ----------
    block : (int, int, int)
        The threads of a block.
    places : tuple of Place
    shared : tuple of Shared
    """

    block: Dim3
    places: tuple[Place, ...]
    shared: tuple[Shared, ...]

    def place(self, event: Event) -> Place | None:
        """Return the matrix that an access to global memory reaches."""
        if event.space != "global" or event.address is None:
            return None
        return self.place_at(event.address)

    def place_at(self, address: npt.NDArray[np.int64]) -> Place | None:
        """Return the matrix that contains all of some addresses in global memory."""
        return next((place for place in self.places if place.holds(address)), None)

    def bytes(self, offset: int, size: int) -> str:
        """Return a range of bytes in shared memory in words, counted within their array."""
        for array in self.shared:
            if array.offset <= offset and offset + size <= array.offset + array.bytes:
                first = offset - array.offset
                return f"{array.name}, bytes {first:,} to {first + size - 1:,}"
        return f"bytes {offset:,} to {offset + size - 1:,} of shared memory"

    def mbarrier(self, offset: int) -> str:
        """Return an mbarrier's name, by its offset in shared memory, as in ``full[1]``."""
        for array in self.shared:
            if array.offset <= offset < array.offset + array.bytes:
                number = (offset - array.offset) // MBARRIER
                return element(array.name, (number,) if array.bytes > MBARRIER else ())
        return f"the mbarrier at byte {offset:,}"


def say(scene: Scene, event: Event, owners: Collection[int] | None = None) -> Words:
    """Return the sentence, and why it matters; the second is empty if there is nothing to say.

    Parameters
    ----------
    scene : Scene
    event : Event
    owners : collection of int, optional
        The block's threads that store an element of C, if they are known.
    """
    who = _who(scene, event)
    if event.space == "global" and event.address is not None:
        return _global(scene, event, who, owners)
    if event.held and event.held[0].name == "rows":
        verb = _verb(event, f"{event.kind}s", event.kind)
        return asynchronous.rows(event, who, verb, _in_shared(scene, event))
    if event.space == "shared" and event.address is not None:
        return _shared(scene, event, who)
    if event.kind == "matrix":
        return asynchronous.product(event, who, _verb(event, "multiplies", "multiply"))
    if event.kind == "copy":
        return _bulk(scene, event, who)
    if event.sync is not None:
        names = " and ".join(map(scene.mbarrier, event.sync.at))
        return asynchronous.sync(event, who, names, _verb)
    if event.kind == "compute":
        into = _verb(event, "into its sum", "each into its own sum")
        return f"{who} {_verb(event, 'calculates', 'calculate')}, {into}.", ""
    if event.kind == "barrier" and event.scope == "warp":
        return f"{who} {_verb(event, 'waits', 'wait')} for the others of the warp.", ""
    if event.kind == "barrier" and event.scope == "part":
        return f"{who} {_verb(event, 'comes', 'come')} to a barrier of a part of the block.", ""
    if event.kind == "barrier":
        return (
            f"{who} {_verb(event, 'waits', 'wait')} at the barrier.",
            "Nobody goes on until the whole block is there: behind it, what any thread stored can "
            "be read, and what all have read can be overwritten.",
        )
    if event.held:
        return f"{who} {_verb(event, 'moves', 'move')} a matrix.", ""
    if event.kind == "branch":
        return f"{who} {_verb(event, 'decides', 'decide')} where to go on.", ""
    if event.kind == "end":
        return f"{who} {_verb(event, 'ends', 'end')}.", ""
    if event.space == "local":
        return f"{who} {_verb(event, 'reaches', 'reach')} memory of its own.", ""
    return f"{who} {_verb(event, 'computes', 'compute')} indices and addresses.", ""


def _who(scene: Scene, event: Event) -> str:
    """Return the threads in as few words as possible."""
    count = len(event.threads)
    everybody = scene.block[0] * scene.block[1] * scene.block[2]
    if count == 1:
        return f"Thread {int(event.threads[0])}"
    if count == everybody:
        return f"All {count} threads"
    warps = np.unique(event.threads // WARP)
    if len(warps) == 1 and everybody > WARP:
        return f"{count} threads of warp {int(warps[0])}"
    return f"{count} of {everybody} threads"


def _verb(event: Event, one: str, many: str) -> str:
    return one if len(event.threads) == 1 else many


def _global(scene: Scene, event: Event, who: str, owners: Collection[int] | None) -> Words:
    assert event.address is not None
    place = scene.place(event)
    verb = {
        "load": _verb(event, "loads", "load"), "store": _verb(event, "stores", "store"),
    }.get(event.kind, _verb(event, "updates", "update"))  # fmt: skip
    if event.is_copy:
        verb = _verb(event, "begins to copy", "begin to copy")
    what = "global memory"
    if place is not None:
        what = _of(place, event.address, event.width)
    used = _used(event)
    of = "it" if event.sectors == 1 else "them"
    share = "all used" if used >= 1 else f"{100 * used:.3g} % of {of} used"
    sectors = f"{event.sectors:,} sector{'' if event.sectors == 1 else 's'}"
    if event.requests > 1 and event.sectors % event.requests == 0:
        sectors += f" ({event.sectors // event.requests} a warp)"
    why = ""
    if used < 1:
        why = (
            "Memory comes in sectors of 32 bytes, whole: what nobody asked for is brought all the "
            "same."
        )
    outside = 0 if owners is None else sum(int(t) not in owners for t in event.threads)
    if event.kind == "load" and scene.shared and outside:
        own = "owns" if outside == 1 else "own"
        load = "loads" if outside == 1 else "load"
        why = f"{outside} of these threads {own} no element of C, and {load} for the others. {why}"
    if event.is_copy:
        why = f"It goes to shared memory by itself, and is there once somebody waits for it. {why}"
    why = f"{_in_turn(event)} {why}"
    return f"{who} {verb} {what}: {sectors}, {share}.", why.strip()


def _used(event: Event) -> float:
    """Return the share of the sectors' bytes that were asked for, a warp at a time."""
    assert event.address is not None
    asked = 0
    for warp in np.unique(event.threads // WARP):
        asked += event.width * len(np.unique(event.address[event.threads // WARP == warp]))
    return asked / (SECTOR * event.sectors) if event.sectors else 1.0


def _shared(scene: Scene, event: Event, who: str) -> Words:
    assert event.address is not None
    verb = {
        "load": _verb(event, "reads", "read"), "store": _verb(event, "stores to", "store to"),
    }.get(event.kind, _verb(event, "updates", "update"))  # fmt: skip
    if event.is_copy:
        return _arriving(scene, event, who)
    what = _in_shared(scene, event)
    if not event.requests:  # the machine code joins it to its neighbour
        tail = "served by the wider access of a step before"
    elif not event.conflicts:
        tail = "no bank conflict"
    else:
        tail = f"{event.conflicts:,} bank conflict{'' if event.conflicts == 1 else 's'}"
    why = _in_turn(event)
    if event.conflicts:
        why += " Threads of a warp want different words of one bank, and are served in turn."
    return f"{who} {verb} {what}: {tail}.", why.strip()


def _arriving(scene: Scene, event: Event, who: str) -> Words:
    """Say that copies have arrived."""
    what = _in_shared(scene, event)
    return f"What {who[0].lower()}{who[1:]} copied arrives in {what}.", ""


def _in_turn(event: Event) -> str:
    """Say why an atomic is needed, if several threads update one place."""
    assert event.address is not None
    if event.kind != "atomic" or len(np.unique(event.address)) == len(event.address):
        return ""
    return "Threads that update one place take turns: each finds what the one before has left."


def _of(place: Place, address: npt.NDArray[np.int64], width: int) -> str:
    """Return the elements of an array that accesses to global memory reach, in words."""
    at = _elements(width, (address - place.pointer) // place.element, place.element)
    if len(place.extents) > 2:
        return _slice(place.said, place.extents, at)
    return f"{_where(place.extents, at)} of {place.said}"


def _bulk(scene: Scene, event: Event, who: str) -> Words:
    """Explain a bulk copy, as far as both its ends are known."""
    move = event.move
    if move is None:
        return asynchronous.copy(event, who, "", "", "")
    source = ""
    if move.origin is not None:
        there = move.origin[move.origin >= 0]
        place = scene.place_at(there) if len(there) else None
        source = "zeros" if not len(there) else "" if place is None else _of(place, there, PIECE)
    where = scene.bytes(move.offset, move.size)
    told = "" if move.barrier is None else scene.mbarrier(move.barrier)
    return asynchronous.copy(event, who, where, source, told)


def _elements(width: int, first: npt.NDArray[np.int64], element: int) -> npt.NDArray[np.int64]:
    """Return all elements that an access reaches, given each thread's first."""
    return (first[:, None] + np.arange(max(1, width // element))).reshape(-1)


def _in_shared(scene: Scene, event: Event) -> str:
    """Return a place in shared memory, in the words of the source if possible."""
    assert event.address is not None
    at = event.address[event.address != NOWHERE]
    return _said(scene, at, event.width)


def _said(scene: Scene, at: npt.NDArray[np.int64], width: int) -> str:
    what = "shared memory"
    for array in scene.shared:
        inside = (at >= array.offset) & (at < array.offset + array.bytes)
        if inside.all() and array.columns:
            place = _elements(width, (at - array.offset) // array.element, array.element)
            whole, parts = place // array.components, np.unique(place % array.components)
            if len(array.extents) > 2:
                what = _slice(array.name, array.extents, whole)
            else:
                what = f"{array.name}, {_where(array.extents, whole)}"
            if len(parts) < array.components:
                what += f", {' and '.join(f'.{COMPONENTS[i]}' for i in parts)}"
    return what


def _where(extents: Sequence[int], at: npt.NDArray[np.int64]) -> str:
    """Return elements of an array of one or two dimensions in words."""
    if len(extents) == 1:
        return _span("element", at)
    rows, columns = index_of(at, extents)
    return f"{_span('row', rows)}, {_span('column', columns)}"


def _slice(array: str, extents: Sequence[int], at: npt.NDArray[np.int64]) -> str:
    """Return elements of an array of three or more dimensions, as ``x[2][0 to 3][0]``."""
    return element(array, (_runs(each, "of ")[0] for each in index_of(at, extents)))


def _span(name: str, numbers: npt.NDArray[np.int64]) -> str:
    """Return rows or columns in words: all of them if they are a few runs, else their number."""
    runs, count = _runs(numbers, f"{name}s from ")
    if count > MOST_RUNS:
        return runs
    return f"{name} {runs}" if (numbers == numbers.flat[0]).all() else f"{name}s {runs}"


def _runs(numbers: npt.NDArray[np.int64], from_: str) -> tuple[str, int]:
    """Return numbers in words, and how many runs of consecutive ones they have.

    The words are the runs, as in ``0 to 3 and 8``. Of many runs they are how many numbers there
    are, ``from_``, and the first and the last number.
    """
    each = np.unique(numbers)
    starts = np.flatnonzero(np.diff(each, prepend=each[0] - 2) != 1)
    ends = np.append(starts[1:], len(each)) - 1
    runs = [
        f"{each[i]}" if i == j else f"{each[i]} to {each[j]}"
        for i, j in zip(starts, ends, strict=True)
    ]
    if len(runs) > MOST_RUNS:
        return f"{len(each)} {from_}{each[0]} to {each[-1]}", len(runs)
    *others, last = runs
    return f"{', '.join(others)} and {last}" if others else last, len(runs)
