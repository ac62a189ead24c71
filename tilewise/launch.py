"""The words of a launch: what is asked of a device, and what it reports back.

These are plain data that devices, kernels and views share, so that none of them has to know
another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tilewise.limits import Limits

Dim3 = tuple[int, int, int]


def dim3(value: int | Sequence[int], what: str) -> Dim3:
    """``value`` as three extents, x first; missing ones are 1.

    Parameters
    ----------
    value : int or sequence of up to three ints
        As CUDA's ``dim3``.
    what : str
        ``"grid"`` or ``"block"``, for the message.

    Raises
    ------
    TypeError
        If an extent is not an integer.
    ValueError
        If there are none or more than three extents, or one is below 1.
    """
    extents = tuple(value) if isinstance(value, Iterable) else (value,)
    if not 1 <= len(extents) <= 3:
        raise ValueError(f"{what} has {len(extents)} extents; it takes one to three, x first")
    for extent in extents:
        if isinstance(extent, bool) or not hasattr(extent, "__index__"):
            raise TypeError(f"{what} {extents!r}: {extent!r} is not an integer")
        if extent < 1:
            raise ValueError(f"{what} {extents!r}: every extent must be at least 1")
    x, y, z = (*(int(extent) for extent in extents), 1, 1)[:3]
    return x, y, z


@dataclass(frozen=True)
class Resources:
    """What ptxas reports for one kernel on one architecture.

    Attributes
    ----------
    registers : int
        32-bit registers a thread.
    shared_bytes : int
        Static shared memory a block.
    spill_bytes : int
        Bytes a thread of spill stores and spill loads together.
    stack_bytes : int
        Stack frame a thread.
    barriers : int
        Named barriers a block.
    constant_bytes : int
        Constant memory, kernel parameters included.
    """

    registers: int
    shared_bytes: int
    spill_bytes: int
    stack_bytes: int
    barriers: int
    constant_bytes: int

    def to_dict(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass
class Counters:
    """What a launch, or one source line of it, did. Whole-launch totals.

    Requests are warp instructions with at least one active lane; sectors are distinct 32-byte
    pieces a request, and bytes are those of them that a lane asked for; a wavefront is one turn
    of shared memory's 32 banks, and a bank conflict one beyond the fewest that the access width
    needs. Barriers and divergent branches are counted a warp; additions, multiplications and
    fused multiply-adds (``fadd``, ``fmul``, ``ffma`` of float, ``dadd``, ``dmul``, ``dfma`` of
    double) a thread, as the PTX has them. The meaning is Nsight Compute's
    (``l1tex__t_requests``, ``l1tex__t_sectors``, ``l1tex__data_bank_conflicts``,
    ``smsp__sass_thread_inst_executed_op_ffma``).
    """

    global_load_requests: int = 0
    global_load_sectors: int = 0
    global_load_bytes: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_store_bytes: int = 0
    global_atomic_requests: int = 0
    global_atomic_sectors: int = 0
    shared_load_requests: int = 0
    shared_load_wavefronts: int = 0
    shared_load_bank_conflicts: int = 0
    shared_store_requests: int = 0
    shared_store_wavefronts: int = 0
    shared_store_bank_conflicts: int = 0
    shared_atomic_requests: int = 0
    local_load_requests: int = 0
    local_store_requests: int = 0
    barriers: int = 0
    divergent_branches: int = 0
    flops: int = 0
    fadd: int = 0
    fmul: int = 0
    ffma: int = 0
    dadd: int = 0
    dmul: int = 0
    dfma: int = 0
    warp_instructions: int = 0
    thread_instructions: int = 0

    def to_dict(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __iadd__(self, other: Counters) -> Counters:
        mine = vars(self)
        for name, value in vars(other).items():
            if value:
                mine[name] += value
        return self


@dataclass(frozen=True)
class Footprint:
    """The sectors of global memory that a launch reaches, each counted once.

    Attributes
    ----------
    block_loads : int
        Distinct sectors that each block loads, all blocks together: what comes from L2 if a
        block's L1 forgets nothing and knows nothing of the block before.
    loads, stores : int
        Distinct sectors that the launch loads, and stores: what DRAM moves at least.
    """

    block_loads: int
    loads: int
    stores: int

    def to_dict(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Alike:
    """Blocks of which one was run, and its counters multiplied.

    Attributes
    ----------
    block : (int, int, int)
        The one that was run.
    count : int
        How many there are, that one among them.
    """

    block: Dim3
    count: int


@dataclass(frozen=True)
class Finding:
    """One fault that a check found.

    Attributes
    ----------
    kind : str
        ``"out of bounds"``, ``"misaligned"``, ``"uninitialised"``, ``"race"`` or ``"barrier"``.
    message : str
        The whole of it in one sentence.
    file : str
        Source file: the kernel's own as given to the compiler, or a header, by its path from the
        same place if it lies below the kernel's folder.
    line : int
        Line of ``file``, from 1; 0 where the compiler gave none.
    block, thread : tuple of int or None
        Indices x, y, z.
    array : str or None
        The kernel's parameter or the shared variable.
    index : tuple of int or int or None
        Element index in ``array``.
    """

    kind: str
    message: str
    file: str
    line: int
    block: Dim3 | None = None
    thread: Dim3 | None = None
    array: str | None = None
    index: int | tuple[int, ...] | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Place:
    """An address that is known only when a launch is made: of one of the arrays it is given.

    Attributes
    ----------
    array : int
        Which of the arrays, from 0.
    offset : int
        Bytes from its first element; at least 0.
    """

    array: int
    offset: int = 0

    def address(self, addresses: Sequence[int]) -> int:
        """Where it is, of arrays that begin at ``addresses``."""
        return addresses[self.array] + self.offset

    def moved(self, by: Mapping[int, int]) -> Place:
        """The same of arrays that begin so many bytes further on, by their numbers."""
        return replace(self, offset=self.offset + by.get(self.array, 0))


SWIZZLES = (32, 64, 128)  # bytes a row of the boxes that are swizzled


ITEM_SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
"""Bytes of the elements that matrices are of."""


@dataclass(frozen=True)
class TensorMap:
    """A tensor map by value, for bulk copies of boxes of a batch of matrices (TMA).

    CUDA driver API, ``cuTensorMapEncodeTiled``. In shared memory a box whose rows are one of
    :data:`SWIZZLES` is swizzled over that width; the rows of any other follow one another.

    Attributes
    ----------
    place : Place
        Of the first element; a multiple of 16 bytes.
    dtype : str
        ``"float16"``, ``"bfloat16"``, ``"float32"`` or ``"float64"``.
    extents : (int, int, int)
        Elements along the contiguous dimension, along the other, and matrices.
    strides : (int, int)
        Bytes from one to the next along the other dimension, and from matrix to matrix.
    box : (int, int)
        Columns, which are a multiple of 16 bytes, and rows; up to 256 of each.
    promotion : int
        How many bytes the L2 cache fetches at once at least: 0, 64, 128 or 256.
    """

    place: Place
    dtype: str
    extents: Dim3
    strides: tuple[int, int]
    box: tuple[int, int]
    promotion: int = 128

    def moved(self, by: Mapping[int, int]) -> TensorMap:
        """As :meth:`Place.moved`."""
        return replace(self, place=self.place.moved(by))


Encode = Callable[[TensorMap, int], bytes]
"""Gives the bytes of a tensor map, its first element being at an address."""


@dataclass(frozen=True)
class Packed:
    """A structure by value with addresses, and tensor maps, in it.

    Attributes
    ----------
    data : bytes
        The whole structure; what stands where an address or a map goes does not matter.
    places : tuple of (int, Place)
        The offset in ``data`` of each address's 8 bytes, and the address.
    maps : tuple of (int, TensorMap)
        The offset of each tensor map's 128 bytes, and the map.
    """

    data: bytes
    places: tuple[tuple[int, Place], ...] = ()
    maps: tuple[tuple[int, TensorMap], ...] = ()

    def filled(self, addresses: Sequence[int], encode: Encode | None = None) -> bytes | Packed:
        """The structure with arrays that begin at ``addresses``.

        Without ``encode``, one with tensor maps stays as it is.
        """
        if self.maps and encode is None:
            return self
        data = bytearray(self.data)
        for offset, place in self.places:
            data[offset : offset + 8] = place.address(addresses).to_bytes(8, "little")
        if encode is not None:
            for offset, x in self.maps:
                encoded = encode(x, x.place.address(addresses))
                data[offset : offset + len(encoded)] = encoded
        return bytes(data)

    def moved(self, by: Mapping[int, int]) -> Packed:
        """As :meth:`Place.moved`."""
        places = tuple((at, place.moved(by)) for at, place in self.places)
        return replace(self, places=places, maps=tuple((at, x.moved(by)) for at, x in self.maps))


@dataclass(frozen=True)
class Launch:
    """One launch: grid, block, arguments, dynamic shared memory.

    Attributes
    ----------
    grid, block : (int, int, int)
        Blocks a grid, threads a block; x first.
    args : tuple
        One a kernel parameter, in order. A :class:`Place`, a :class:`Packed` or a
        :class:`TensorMap` stands for what only a launch prepared beforehand is given later.
    shared : int
        Dynamic shared memory a block, bytes.
    checks : str
        What the emulator does with a fault: ``"raise"``; ``"strict"`` raises also at what is
        only noted otherwise; ``"collect"`` it in the report and go on; ``"off"`` looks for none
        but accesses outside every array.
    overlap : bool
        On a GPU it may start before the kernel ahead of it in the stream has ended: the kernel
        itself waits, by ``griddepcontrol.wait`` (CUDA C++ Programming Guide, "Programmatic
        Dependent Launch and Synchronization").
    global_races : bool
        Whether the emulator looks for races in global memory too, which takes time and memory.
    limits : Limits or None
        What it may take on the emulator.
    """

    grid: Dim3
    block: Dim3
    args: tuple[Any, ...]
    shared: int = 0
    checks: str = "raise"
    overlap: bool = False
    global_races: bool = False
    limits: Limits | None = None

    def filled(
        self,
        addresses: Sequence[int],
        encode: Encode | None = None,
    ) -> Launch:
        """The same with the addresses of arrays that begin at ``addresses``.

        Parameters
        ----------
        addresses : sequence of int
        encode : callable, optional
            Without it tensor maps stay as they are.
        """

        def known(argument: Any) -> Any:
            if isinstance(argument, Place):
                return argument.address(addresses)
            if isinstance(argument, TensorMap) and encode is not None:
                return encode(argument, argument.place.address(addresses))
            return argument.filled(addresses, encode) if isinstance(argument, Packed) else argument

        return replace(self, args=tuple(map(known, self.args)))

    def moved(self, by: Mapping[int, int]) -> Launch:
        """As :meth:`Place.moved`."""
        given = (Place, Packed, TensorMap)
        return replace(
            self, args=tuple(x.moved(by) if isinstance(x, given) else x for x in self.args)
        )


@dataclass(frozen=True)
class LaunchReport:
    """What one launch did.

    Attributes
    ----------
    device : str
        ``"gpu"`` or ``"emulator"``.
    kernel : str
        The kernel's name.
    launch : Launch
    resources : Resources
    seconds : float
        On a GPU the kernel's time by device events; on the emulator the host's wall time.
    counters : Counters or None
        None where the device does not count.
    lines : mapping of int to Counters
        The same a line of the kernel's own file; empty where the device does not count. What a
        header's function does counts at the line that it was inlined at; where it was not
        inlined, in ``counters`` only.
    counted_as : str
        ``"machine code"`` where shared-memory accesses were joined as ptxas joined them,
        ``"PTX"`` where that could not be confirmed (``notes`` says why).
    findings : tuple of Finding
    output : str
        What the kernel printed.
    notes : tuple of str
    alike : tuple of Alike
        Where not every block was run but one of each kind, the kinds.
    footprint : Footprint or None
        None where it was not asked for.
    """

    device: str
    kernel: str
    launch: Launch
    resources: Resources
    seconds: float
    counters: Counters | None = None
    lines: Mapping[int, Counters] = field(default_factory=dict)
    counted_as: str = "machine code"
    findings: tuple[Finding, ...] = ()
    output: str = ""
    notes: tuple[str, ...] = ()
    alike: tuple[Alike, ...] = ()
    footprint: Footprint | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; without the arguments."""
        return {
            "device": self.device,
            "kernel": self.kernel,
            "grid": list(self.launch.grid),
            "block": list(self.launch.block),
            "dynamic_shared_bytes": self.launch.shared,
            "seconds": self.seconds,
            "resources": self.resources.to_dict(),
            "counters": None if self.counters is None else self.counters.to_dict(),
            "lines": {str(line): c.to_dict() for line, c in sorted(self.lines.items())},
            "counted_as": self.counted_as,
            "findings": [finding.to_dict() for finding in self.findings],
            "output": self.output,
            "notes": list(self.notes),
            "alike": [{"block": list(each.block), "count": each.count} for each in self.alike],
            "footprint": None if self.footprint is None else self.footprint.to_dict(),
        }
