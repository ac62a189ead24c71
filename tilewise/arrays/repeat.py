"""A call like one before it: known by all that decided that one, and launched at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilewise.arrays.fusion import Asked
from tilewise.arrays.libraries import Array, Library, repeatable
from tilewise.devices.gpu import Gpu
from tilewise.devices.prepared import Prepared
from tilewise.gemm.product import ALIGNMENT

RECORDS = 4096

Key = tuple[Any, ...]
_NUMBERS = (int, float)


class Repeat(NamedTuple):
    """What a call on a GPU came to; it holds no addresses.

    Attributes
    ----------
    library : Library
    gpu : Gpu
    launches : tuple of Prepared
    result : callable
        A new array for the result.
    workspace : callable or None
        A new array for the launches; None if they need none.
    reads_c : bool
    reach : (int, int, int, int) or tuple()
        Bytes from the first element's to behind the last one's: of A, B, C and the result. Empty
        where that is new each time, and overlaps nothing.
    is_c_like_out : bool
        Whether C may be the result: both lie alike.
    others : tuple of callable
        New arrays for the results besides the first.
    is_tuple : bool
        Whether the results are returned as a tuple.
    """

    library: Library
    gpu: Gpu
    launches: tuple[Prepared, ...]
    result: Callable[[], Array]
    workspace: Callable[[], Array] | None
    reads_c: bool
    reach: Sequence[int]
    is_c_like_out: bool
    others: tuple[Callable[[], Array], ...] = ()
    is_tuple: bool = False

    def run(
        self, a: Array, b: Any, c: Array | None, out: Array | None, asked: Asked | None = None
    ) -> Any:
        """What the call returns; None where the addresses ask for a closer look.

        Raises
        ------
        LaunchError
            If an earlier kernel failed.
        DeviceUnavailableError
            In a process forked from one that used the GPU already.
        """
        context = self.gpu.context
        if context.is_ready:
            return self._run(a, b, c, out, asked)
        with context.current():
            return self._run(a, b, c, out, asked)

    def _run(
        self, a: Array, b: Any, c: Array | None, out: Array | None, asked: Asked | None
    ) -> Any:
        address = self.library.address
        up = None
        if type(b) is tuple:
            b, up = b
        of_a, of_b = address(a), address(b)
        of_c = address(c) if self.reads_c else 0
        if out is None:
            out = self.result()
            of_out = address(out)
            if of_out % ALIGNMENT:
                return None
        else:
            of_out = address(out)
            if self._may_overlap((of_a, of_b, of_c), of_out):
                return None
        workspace = None if self.workspace is None else self.workspace()
        of_workspace = 0 if workspace is None else address(workspace)
        stream = self.library.stream(self.gpu.context.ordinal)
        addresses: tuple[int, ...] = (of_a, of_b, of_c, of_out, of_workspace)
        if asked is None:
            for launch in self.launches:
                launch.enqueue(stream, addresses)
            return out
        others = [make() for make in self.others]
        arrays = [x for x in asked.operands if type(x) not in _NUMBERS]
        arrays += others
        if up is not None:
            arrays.append(up)
        addresses += tuple(map(address, arrays))
        for launch in self.launches:
            launch.enqueue(stream, addresses)
        return (out, *others) if self.is_tuple else out

    def _may_overlap(self, inputs: tuple[int, int, int], out: int) -> bool:
        """Whether an input lies between the result's first and last byte, or they in it."""
        *reaches, reach = self.reach
        for index, (begin, extent) in enumerate(zip(inputs, reaches, strict=True)):
            if index == 2 and begin == out and self.is_c_like_out:
                continue
            if begin < out + reach and out < begin + extent:
                return True
        return False


_records: dict[Key, Repeat] = {}


def find(
    a: Array,
    b: Array | tuple[Array, Array],
    c: Array | None,
    out: Array | Sequence[Array] | None,
    alpha: float,
    beta: float,
    *options: object,
    asked: Asked | None = None,
) -> tuple[Key | None, Repeat | None]:
    """A call's key, and the record of one like it.

    Returns
    -------
    key : tuple or None
        All that decides how it is answered, but for where its arrays lie; None where the call
        must be looked at closely each time.
    record : Repeat or None
    """
    library = repeatable.get(type(a))
    of_b = b if type(b) is tuple else (b,)
    if library is None or any(repeatable.get(type(x)) is not library for x in of_b):
        return None, None
    # Of other types, a number may change, and True is no number here.
    if type(alpha) not in _NUMBERS or type(beta) not in _NUMBERS:
        return None, None
    for x in (c, out):
        if x is not None and repeatable.get(type(x)) is not library:
            return None, None
    signature = library.signature
    of_epilogue: Key = ()
    try:
        if asked is not None:
            if out is not None:
                return None, None
            of_epilogue = (
                asked.function,
                asked.pairs,
                *(x if type(x) in _NUMBERS else signature(x) for x in asked.operands),
            )
        key = (
            signature(a),
            tuple(map(signature, of_b)),
            None if c is None else signature(c),
            None if out is None else signature(out),
            alpha,
            beta,
            *options,
            *of_epilogue,
        )
        return key, _records.get(key)
    except Exception:  # whatever an array's own library raises; a closer look says it in our words
        return None, None


def remember(key: Key, record: Repeat) -> None:
    """Keep it for calls with the same key."""
    if len(_records) >= RECORDS:
        _records.clear()
    _records[key] = record


def forget() -> None:
    """Have every call looked at closely again."""
    _records.clear()
