"""Repeat earlier calls: find them by a key, and launch them without planning again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from tilewise.arrays.fusion import APART, Asked
from tilewise.arrays.libraries import Array, Library, repeatable
from tilewise.arrays.operands import span
from tilewise.devices.gpu import Gpu
from tilewise.devices.prepared import Prepared
from tilewise.gemm.product import ALIGNMENT

RECORDS = 4096

Key = tuple[Any, ...]
_NUMBERS, _SEQUENCES = (int, float), (tuple, list)


class Apart(NamedTuple):
    """An array and a result of a call, by their indices in it, which must not overlap.

    Attributes
    ----------
    array, extent : int
        The array's index, and the bytes from its first element to the end of its last one.
    result, result_extent : int
        The result's index, and its bytes.
    may_be_result : bool
        Whether the array may be the result itself, because each element is read before it is
        written.
    """

    array: int
    extent: int
    result: int
    result_extent: int
    may_be_result: bool


class Repeat(NamedTuple):
    """The launches of a call on a GPU, without addresses, so that a later call can repeat them.

    Attributes
    ----------
    library : Library
    gpu : Gpu
    launches : tuple of Prepared
    results : tuple of callable
        Functions that make new arrays for the results; empty if the caller gives them.
    run : callable
        Launches the call as ``run(addresses, out=None)``, and returns its results; None if it has
        to be planned anew, because arrays overlap, or because a new result is not aligned.
        ``addresses`` are those of the call's arrays, as :func:`find` returns them, and ``out`` is
        the results, if the caller gives them. It raises LaunchError if an earlier kernel failed,
        and DeviceUnavailableError if this process was forked from one that used the GPU already.
    """

    library: Library
    gpu: Gpu
    launches: tuple[Prepared, ...]
    results: tuple[Callable[[], Array], ...]
    run: Callable[..., Any]


def record(
    library: Library,
    gpu: Gpu,
    launches: tuple[Prepared, ...],
    *,
    matrices: Sequence[Array],
    operands: Sequence[Array],
    results: Sequence[Array],
    c: Array | None,
    c_may_be_result: bool = True,
    workspace: Array | None = None,
    are_given: bool,
    is_tuple: bool,
) -> Repeat:
    """Return the :class:`Repeat` of a call whose arrays were all used in place, without copies.

    Parameters
    ----------
    library, gpu, launches
        The attributes of :class:`Repeat`.
    matrices : sequence of array
        A and B; with pairs in two arrays, A and both B.
    operands : sequence of array
        The arrays among an epilogue's operands.
    results : sequence of array
    c : array or None
        C, or a grouped product's offsets; None if it is not read.
    c_may_be_result : bool, optional
        Whether C may be the result itself, if both have the same shape and strides.
    workspace : array, optional
        The workspace of the launches.
    are_given : bool
        Whether the caller gave the results.
    is_tuple : bool
        Whether the results are returned as a tuple.
    """
    # The indices of the addresses in run(). Arrays of the call are counted from the front, in the
    # order of find(); new results, the workspace and 0 from the back, in the order in which run()
    # appends them.
    first = len(matrices)
    of_operands = range(first, first + len(operands))
    first += len(operands)
    of_results = range(first, first + len(results))
    of_c = first + len(results) if are_given else first
    nothing, of_workspace = -1, -1 if workspace is None else -2
    if not are_given:
        of_results = range(of_workspace - len(results), of_workspace)
    order = (
        0, 1, nothing if c is None else of_c, of_results[0], of_workspace,
        *of_operands, *of_results[1:], *range(2, len(matrices)),
    )  # fmt: skip
    apart: list[Apart] = []
    if are_given:
        read = [(i, x, False) for i, x in enumerate(matrices)]
        read += [(i, x, True) for i, x in zip(of_operands, operands, strict=True)]
        if c is not None:
            read.append((of_c, c, c_may_be_result))
        for at, result in zip(of_results, results, strict=True):
            extent, how = _extent(library, result), _how(library, result)
            apart += (
                Apart(i, _extent(library, x), at, extent, may_be and _how(library, x) == how)
                for i, x, may_be in read
            )
            read.append((at, result, False))
    makers = () if are_given else tuple(map(library.maker, results))
    arranged = itemgetter(*order)
    make = None if workspace is None else library.maker(workspace)
    if are_given:
        run = _into_given(library, gpu, launches, make, arranged, tuple(apart), is_tuple)
    elif len(launches) == len(makers) == 1 and make is None and not is_tuple:
        run = _into_one(library, gpu, launches[0], makers[0], arranged)
    else:
        run = _into_new(library, gpu, launches, makers, make, arranged, is_tuple)
    return Repeat(library, gpu, launches, makers, run)


Make = Callable[[], Array]
Arranged = Callable[[Sequence[int]], Sequence[int]]
"""A function that returns the addresses in the order in which the launches take them. Its argument
is the addresses of the call's arrays, then those of new results, that of the workspace, and 0.
"""


def _into_one(
    library: Library, gpu: Gpu, launch: Prepared, make: Make, arranged: Arranged
) -> Callable[..., Any]:
    """Return the ``run`` of one launch with one new result: :func:`_into_new` in less time."""
    context, address, ordinal = gpu.context, library.address, gpu.context.ordinal

    def run(addresses: Sequence[int], out: None = None) -> Any:
        if not context.is_ready:
            with context.current():
                return run(addresses)
        result = make()
        there = address(result)
        if there % ALIGNMENT:
            return None
        launch.enqueue(library.stream(ordinal), arranged([*addresses, there, 0]))
        return result

    return run


def _into_new(
    library: Library,
    gpu: Gpu,
    launches: tuple[Prepared, ...],
    makers: tuple[Make, ...],
    workspace: Make | None,
    arranged: Arranged,
    is_tuple: bool,
) -> Callable[..., Any]:
    """Return the ``run`` of a call whose results are new; ``is_tuple`` if they are a tuple."""
    context, address, ordinal = gpu.context, library.address, gpu.context.ordinal

    def run(addresses: Sequence[int], out: None = None) -> Any:
        if not context.is_ready:
            with context.current():
                return run(addresses)
        results = [make() for make in makers]
        there = [*map(address, results)]
        for each in there:
            if each % ALIGNMENT:
                return None
        if workspace is not None:
            space = workspace()  # freed in the stream's order, so after the launches
            there.append(address(space))
        where, stream = arranged([*addresses, *there, 0]), library.stream(ordinal)
        for launch in launches:
            launch.enqueue(stream, where)
        return tuple(results) if is_tuple else results[0]

    return run


def _into_given(
    library: Library,
    gpu: Gpu,
    launches: tuple[Prepared, ...],
    workspace: Make | None,
    arranged: Arranged,
    apart: tuple[Apart, ...],
    is_tuple: bool,
) -> Callable[..., Any]:
    """Return the ``run`` of a call whose caller gives the results."""
    context, address, ordinal = gpu.context, library.address, gpu.context.ordinal

    def run(addresses: Sequence[int], out: Array | Sequence[Array]) -> Any:
        if not context.is_ready:
            with context.current():
                return run(addresses, out)
        for array, extent, result, result_extent, may_be_result in apart:
            begin, there = addresses[array], addresses[result]
            if begin < there + result_extent and there < begin + extent:
                if may_be_result and begin == there:
                    continue
                return None
        known = [*addresses]
        if workspace is not None:
            space = workspace()  # freed in the stream's order, so after the launches
            known.append(address(space))
        known.append(0)
        where, stream = arranged(known), library.stream(ordinal)
        for launch in launches:
            launch.enqueue(stream, where)
        if type(out) not in _SEQUENCES:
            return (out,) if is_tuple else out
        return tuple(out) if is_tuple else out[0]

    return run


def _extent(library: Library, x: Array) -> int:
    """Return the bytes from an array's first element to the end of its last one."""
    view = library.view(x)
    assert view is not None
    return int(x.itemsize) * span(view)


def _how(library: Library, x: Array) -> object:
    """Return an array's shape and strides, which with its address tell two arrays apart."""
    place = library.stand_in(x)
    return place.shape, place.strides


_records: dict[Key, Repeat] = {}

Found = tuple[Key | None, Repeat | None, list[int]]
_NOTHING: Found = (None, None, [])


def find(
    a: Array,
    b: Array | tuple[Array, Array],
    c: Array | None,
    out: Array | Sequence[Array] | None,
    alpha: float,
    beta: float,
    *options: object,
    asked: Asked | None = None,
) -> Found:
    """Return a call's key, and the record of an earlier call with the same key.

    Returns
    -------
    key : tuple or None
        Everything that decides what is launched, except for the arrays' addresses; None if calls
        like this one have to be planned each time.
    record : Repeat or None
    addresses : list of int
        The addresses of the call's arrays, for :meth:`Repeat.run`.
    """
    # Numbers of other types may be mutable, and True is not accepted as a number.
    if type(alpha) not in _NUMBERS or type(beta) not in _NUMBERS:
        return _NOTHING
    arrays, how = [a, b], (alpha, beta, *options)
    if asked is not None:
        if asked.pairs == APART:
            arrays = [a, *b]
        given: list[object] = []  # numbers, or None for an array
        for x in asked.operands:
            if type(x) in _NUMBERS:
                given.append(x or repr(x))  # 0.0 and -0.0 are equal, but can give different results
            else:
                given.append(None)
                arrays.append(x)
        how = (*how, asked.function, asked.pairs, *given)
    if out is not None:
        if type(out) in _SEQUENCES:
            arrays += out
            how = (*how, len(out))
        else:
            arrays.append(out)
            how = (*how, 1)
    if c is not None:
        arrays.append(c)
    return look(how, arrays)


def look(how: tuple[object, ...], arrays: Sequence[Array]) -> Found:
    """Return what :func:`find` does, given a call's arrays and everything else that decides it."""
    library = repeatable.get(type(arrays[0]))
    if library is None:
        return _NOTHING
    try:
        signatures, addresses = library.signatures(arrays)
        key = how, signatures
        return key, _records.get(key), addresses
    except Exception:  # an array's library may raise anything, and planning raises our own error
        return _NOTHING


def remember(key: Key, record: Repeat) -> None:
    """Keep a record for calls with the same key."""
    if len(_records) >= RECORDS:
        _records.clear()
    _records[key] = record


def kept(key: Key) -> Repeat | None:
    """Return the record that is kept by a key; None if there is none."""
    return _records.get(key)


_others: list[Callable[[], object]] = []


def also_forgets(drop: Callable[[], object]) -> None:
    """Let :func:`forget` call a function, which drops records that are kept elsewhere."""
    _others.append(drop)


def forget() -> None:
    """Drop all records, so that every call is planned again."""
    _records.clear()
    for drop in _others:
        drop()
