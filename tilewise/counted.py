"""The counters of a launch, and the resources of its kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewise.shown import Part, Record, Table, by_name, number, plural, value


@dataclass(frozen=True, repr=False)
class Resources(Record):
    """The resources that ptxas reports for one kernel on one architecture.

    Attributes
    ----------
    registers : int
        The 32-bit registers of a thread.
    shared_bytes : int
        The bytes of static shared memory of a block.
    spill_bytes : int
        The bytes of spill stores and spill loads of a thread together.
    stack_bytes : int
        The bytes of a thread's stack frame.
    barriers : int
        The named barriers of a block.
    constant_bytes : int
        The bytes of constant memory, kernel parameters included.
    missing : str
        Why ptxas reported nothing, for example because nothing here assembles PTX. All other fields
        are 0 then, except for the shared memory that the PTX itself declares.
    """

    registers: int
    shared_bytes: int
    spill_bytes: int
    stack_bytes: int
    barriers: int
    constant_bytes: int
    missing: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by their names, for JSON; None for those that ptxas did not report."""
        found = super().to_dict()
        if not found.pop("missing"):
            return found
        return {**dict.fromkeys(found), "shared_bytes": self.shared_bytes, "missing": self.missing}

    def _parts(self) -> list[Part]:
        return [self._summary(), by_name(self.to_dict())]

    def _summary(self) -> str:
        if self.missing:
            return f"{plural(self.shared_bytes, 'byte')} shared memory a block; {self.missing}"
        spills = (
            f"{plural(self.spill_bytes, 'byte')} of spills" if self.spill_bytes else "no spills"
        )
        shared = f"{plural(self.shared_bytes, 'byte')} shared memory a block"
        return f"{plural(self.registers, 'register')} a thread, {shared}, {spills}"


@dataclass(repr=False)
class Counters(Record):
    """The counters of a launch, or of one of its source lines, as totals of the whole launch.

    Requests are warp instructions with at least one active lane. Sectors are the distinct 32-byte
    pieces of a request, and bytes are those of them that a lane asked for. A wavefront is one turn
    of shared memory's 32 banks, and a bank conflict is a wavefront beyond the fewest that the
    access width needs. For ``cp_async`` these count the write to shared memory; its read is among
    the global loads. A bulk load, store or reduction is one request for each thread that starts it;
    it has the sectors that it moves and the bytes of global memory, and a multicast has both once.
    A ``wgmma`` is one request a warp, with the bytes of its operands in shared memory. Barriers and
    divergent branches are counted for each warp. Additions, multiplications and fused multiply-adds
    (``fadd``, ``fmul``, ``ffma`` for float, ``dadd``, ``dmul``, ``dfma`` for double) are counted
    for each thread, as the PTX has them. The operations of tensor cores on 16-bit factors with
    float32 sums, and on doubles, are among ``flops``, and also counted by type. The meaning is
    Nsight Compute's (``l1tex__t_requests``, ``l1tex__t_sectors``, ``l1tex__data_bank_conflicts``,
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
    ldmatrix_requests: int = 0
    ldmatrix_wavefronts: int = 0
    ldmatrix_bank_conflicts: int = 0
    stmatrix_requests: int = 0
    stmatrix_wavefronts: int = 0
    stmatrix_bank_conflicts: int = 0
    cp_async_requests: int = 0
    cp_async_wavefronts: int = 0
    cp_async_bank_conflicts: int = 0
    wgmma_requests: int = 0
    wgmma_bytes: int = 0
    bulk_load_requests: int = 0
    bulk_load_sectors: int = 0
    bulk_load_bytes: int = 0
    bulk_store_requests: int = 0
    bulk_store_sectors: int = 0
    bulk_store_bytes: int = 0
    bulk_reduction_requests: int = 0
    bulk_reduction_sectors: int = 0
    bulk_reduction_bytes: int = 0
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
    tensor_float16_flops: int = 0
    tensor_bfloat16_flops: int = 0
    tensor_float64_flops: int = 0
    warp_instructions: int = 0
    thread_instructions: int = 0

    @property
    def global_requests(self) -> int:
        """The requests to global memory, including those of bulk copies."""
        plain = self.global_load_requests + self.global_store_requests + self.global_atomic_requests
        bulk = self.bulk_load_requests + self.bulk_store_requests + self.bulk_reduction_requests
        return plain + bulk

    @property
    def global_sectors(self) -> int:
        """The sectors of the requests to global memory, including those of bulk copies."""
        plain = self.global_load_sectors + self.global_store_sectors + self.global_atomic_sectors
        bulk = self.bulk_load_sectors + self.bulk_store_sectors + self.bulk_reduction_sectors
        return plain + bulk

    @property
    def shared_requests(self) -> int:
        """The requests to shared memory, of all kinds except ``wgmma`` and bulk copies."""
        matrices = self.ldmatrix_requests + self.stmatrix_requests
        plain = self.shared_load_requests + self.shared_store_requests
        return plain + self.shared_atomic_requests + matrices + self.cp_async_requests

    @property
    def shared_wavefronts(self) -> int:
        """The wavefronts of all kinds of accesses to shared memory that are counted."""
        matrices = self.ldmatrix_wavefronts + self.stmatrix_wavefronts
        plain = self.shared_load_wavefronts + self.shared_store_wavefronts
        return plain + matrices + self.cp_async_wavefronts

    @property
    def shared_bank_conflicts(self) -> int:
        """The bank conflicts of all kinds of accesses to shared memory that are counted."""
        matrices = self.ldmatrix_bank_conflicts + self.stmatrix_bank_conflicts
        plain = self.shared_load_bank_conflicts + self.shared_store_bank_conflicts
        return plain + matrices + self.cp_async_bank_conflicts

    def __iadd__(self, other: Counters) -> Counters:
        mine = vars(self)
        for name, count in vars(other).items():
            if count:
                mine[name] += count
        return self

    def _summary(self) -> str:
        return (
            f"global memory {self.global_load_requests:,} load and "
            f"{self.global_store_requests:,} store requests, shared memory "
            f"{self.shared_load_requests:,} and {self.shared_store_requests:,}, {self.flops:,} "
            "floating-point operations"
        )

    def by_memory(self) -> list[tuple[str, int, int | None, int | None]]:
        """Return a row for each kind of access: its name, its requests, sectors and bank conflicts.

        Global and shared loads and stores are always there, other kinds if there are any. A kind
        without sectors, or without bank conflicts, has None.
        """
        rows: list[tuple[str, int, int | None, int | None]] = [
            ("global loads", self.global_load_requests, self.global_load_sectors, None),
            ("global stores", self.global_store_requests, self.global_store_sectors, None),
            ("shared loads", self.shared_load_requests, None, self.shared_load_bank_conflicts),
            ("shared stores", self.shared_store_requests, None, self.shared_store_bank_conflicts),
        ]
        rare: list[tuple[str, int, int | None, int | None]] = [
            ("ldmatrix", self.ldmatrix_requests, None, self.ldmatrix_bank_conflicts),
            ("stmatrix", self.stmatrix_requests, None, self.stmatrix_bank_conflicts),
            ("cp.async to shared", self.cp_async_requests, None, self.cp_async_bank_conflicts),
            ("wgmma", self.wgmma_requests, None, None),
            ("bulk loads", self.bulk_load_requests, self.bulk_load_sectors, None),
            ("bulk stores", self.bulk_store_requests, self.bulk_store_sectors, None),
            ("bulk reductions", self.bulk_reduction_requests, self.bulk_reduction_sectors, None),
            ("global atomics", self.global_atomic_requests, self.global_atomic_sectors, None),
            ("shared atomics", self.shared_atomic_requests, None, None),
            ("local loads", self.local_load_requests, None, None),
            ("local stores", self.local_store_requests, None, None),
        ]
        return [*rows, *(row for row in rare if row[1])]

    def _parts(self) -> list[Part]:
        return [
            Table(
                [(name, *map(value, counts)) for name, *counts in self.by_memory()],
                ("counters", "requests", "sectors", "bank conflicts"),
            ),
            f"{number(self.flops)} floating-point operations, {number(self.barriers)} barriers, "
            f"{number(self.divergent_branches)} divergent branches",
        ]


@dataclass(frozen=True, repr=False)
class Footprint(Record):
    """The sectors of global memory that a launch reaches, each counted once.

    Attributes
    ----------
    block_loads : int
        The distinct sectors that each block loads, added up over all blocks: what comes from L2 if
        a block's L1 cache keeps everything, and nothing from the block before.
    loads, stores : int
        The distinct sectors that the launch loads, and stores: the least that DRAM moves.
    """

    block_loads: int
    loads: int
    stores: int

    def _summary(self) -> str:
        return (
            f"{plural(self.loads, 'sector')} loaded, {self.stores:,} stored; each block's own, "
            f"{self.block_loads:,} loaded"
        )


@dataclass(frozen=True, eq=False)
class Confirmation:
    """Whether counts are those of the machine code, which is read only when it is asked for.

    Two confirmations are equal if their doubts are. A pickled one has its doubt already.

    Attributes
    ----------
    find_doubt : callable
        A function that returns :attr:`doubt`. It is called once.
    """

    find_doubt: Callable[[], str] = str

    @cached_property
    def doubt(self) -> str:
        """Why the counts are not confirmed; empty if they are."""
        return self.find_doubt()

    def __eq__(self, other: object) -> bool:
        return self.doubt == other.doubt if isinstance(other, Confirmation) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.doubt)

    def __getstate__(self) -> dict[str, str]:
        return {"doubt": self.doubt}
