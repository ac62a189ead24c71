"""The ceilings of a GPU, measured by probes: kernels that do only one thing.

Each probe is a file in ``kernels/probes/``; those of the tensor cores are in
:mod:`tilewise.lens.tensor_cores`. A thread repeats a round that does what is measured, and little
else. :data:`PROBES` says how much of it a round has, and the tests compare that with the loop in
the machine code.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.compiler import Compiled
from tilewise.compiler.machine_code import INSTALL_HINT, find_nvdisasm
from tilewise.devices.gpu import Gpu
from tilewise.errors import TilewiseError
from tilewise.kernel import SOURCES, Kernel
from tilewise.launch import Launch
from tilewise.lens import tensor_cores
from tilewise.lens.roofline import RATES, Ceilings
from tilewise.provenance import provenance

FOLDER = SOURCES / "probes"
LANES = 32
THREADS = 256  # threads of a block
CHUNK_BYTES = 8 * THREADS * 16  # bytes that a block reads in a round of dram_read and l2_read
ROUNDS = 5
_READ_BYTES = 1 << 30
_SECONDS = 60.0
_LABEL = re.compile(r"^\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")


@dataclass(frozen=True)
class Probe:
    """A kernel that reaches one ceiling.

    Attributes
    ----------
    name : str
        The name of the kernel and of its file.
    loop : mapping of str to int
        The number of machine instructions of a round that count, by their first part and width, as
        in ``"LDS.128"``.
    worth : float
        The bytes, or operations, of one of them, executed by a whole warp.
    rounds : int
        The rounds of a launch, which take a few milliseconds. For DRAM it is one round, by as many
        blocks as read 1 GiB.
    """

    name: str
    loop: Mapping[str, int]
    worth: float
    rounds: int

    @property
    def kernel(self) -> Kernel:
        return Kernel(FOLDER / f"{self.name}.cu", self.name)

    def a_round(self, compiled: Compiled) -> float:
        """Return the work of a warp in a round, in the ceiling's unit."""
        return self.worth * sum(self.loop.values())


class IssueProbe(Probe):
    """The probe that counts every instruction of its loop, including the loop's own."""

    def a_round(self, compiled: Compiled) -> float:
        for loop in loops(compiled):
            if all(count(loop, opcode) == times for opcode, times in self.loop.items()):
                return self.worth * len(loop)
        raise TilewiseError(f"the loop of {self.name} is not in its machine code")


STEPS = len(RATES) + len(tensor_cores.DTYPES)
"""The number of times that :func:`measure` calls its ``step``."""
PROBES: Mapping[str, Probe] = {
    "dram": Probe("dram_read", {"LDG.128": 8}, LANES * 16, 1),
    "l2": Probe("l2_read", {"LDG.128": 8}, LANES * 16, 500),
    "shared": Probe("shared_read", {"LDS.128": 8}, LANES * 16, 4000),
    "issue": IssueProbe("issue_rate", {"FFMA": 128, "SHF": 128}, 1, 2000),
    "float32": Probe("float32_peak", {"FFMA": 512}, LANES * 2, 1000),
    "float64": Probe("float64_peak", {"DFMA": 128}, LANES * 2, 1000),
}


def measure(
    gpu: Gpu,
    seconds: float,
    step: Callable[[str], None] = lambda _: None,
    command: Sequence[str] = (),
) -> Ceilings:
    """Measure the ceilings of a GPU in the steady state.

    Parameters
    ----------
    gpu : Gpu
    seconds : float
        The seconds for which each is measured, in five rounds of which the median counts; a fifth
        of that time warms up.
    step : callable
        A function that is called with the name of each ceiling before it is measured.
    command : sequence of str
        The words of the command line, for the record.

    Raises
    ------
    ValueError
        If ``seconds`` is not positive.
    MemoryError
        If the GPU has less than 1 GiB of free memory.
    """
    if not 0 < seconds < 1e6:
        raise ValueError(f"seconds is {seconds:g}; each ceiling takes some, 1 for example")
    rates = {}
    for rate in RATES:
        step(rate)
        rates[rate] = rate_of(gpu, rate, seconds)
    products: dict[str, float] = {}
    for dtype in tensor_cores.DTYPES:
        step(f"tensor cores, {dtype}")
        flops = tensor_cores.tensor_core_flops(gpu, dtype, seconds)
        if flops is not None:
            products[dtype] = flops
    record = provenance(command)
    source = f"measured {record['date'][:10]} by `{record['command']}`, {gpu.description}"
    name = gpu.description.partition(",")[0]
    return Ceilings(
        name=name, arch=gpu.arch.rstrip("af"), **rates, tensor_cores=products,
        source=source, multiprocessors=gpu.multiprocessors,
    )  # fmt: skip


def rate_of(gpu: Gpu, rate: str, seconds: float) -> float:
    """Return one of the ceilings, as a rate per second; :func:`measure` measures each by it."""
    probe = PROBES[rate]
    compiled = probe.kernel.compile(gpu.arch)
    # The grid has as many blocks as can be resident, so that all begin and end together.
    blocks = gpu.multiprocessors * gpu.blocks_per_multiprocessor(compiled, THREADS)
    if rate == "dram":
        blocks = max(_READ_BYTES // CHUNK_BYTES, 1)
    launch = Launch((blocks, 1, 1), (THREADS, 1, 1), (probe.rounds, *_arguments(gpu, rate, blocks)))
    once = gpu.measure(compiled, launch, rounds=ROUNDS, minimum_seconds=seconds / ROUNDS)
    return blocks * (THREADS // LANES) * probe.rounds * probe.a_round(compiled) / once


def _arguments(gpu: Gpu, rate: str, blocks: int) -> tuple[Any, ...]:
    """Return the probe's arguments after the number of rounds."""
    if rate == "dram":
        return 0, gpu.array(_random(blocks * CHUNK_BYTES)), gpu.empty((1,), np.uint32)
    dtype = rate if rate in ("float32", "float64") else np.uint32
    out = gpu.empty((blocks * THREADS,), dtype)
    middle: tuple[Any, ...] = {
        "shared": (),
        "issue": (0.5, 5),
        "float32": (0.5,),
        "float64": (0.5,),
    }.get(rate, ())
    if rate == "l2":
        chunks = l2_chunks(gpu.l2_bytes)
        middle = (chunks, gpu.array(_random(chunks * CHUNK_BYTES)))
    return *middle, out


def l2_chunks(l2_bytes: int) -> int:
    """Return the chunks that the L2 probe reads: a power of two, and at most a third of the cache.

    Half of the cache may hold copies of the other half's data: from the A100 on, each half is near
    half of the multiprocessors.
    """
    return 1 << max((l2_bytes // 3 // CHUNK_BYTES).bit_length() - 1, 0)


def _random(nbytes: int) -> Any:
    return np.random.default_rng(0).integers(0, 1 << 32, nbytes // 4, np.uint32)


# The loops of the machine code


def count(loop: Sequence[str], opcode: str) -> int:
    """Return the number of instructions in a loop with the parts of ``opcode``, in any order."""
    wanted = opcode.split(".")
    return sum(
        each.split(".")[0] == wanted[0] and set(wanted) <= set(each.split(".")) for each in loop
    )


def loops(compiled: Compiled) -> list[list[str]]:
    """Return the opcodes of each innermost loop in a kernel's machine code.

    A loop is everything between a label and a branch back to it.

    Raises
    ------
    ImportError
        If nvdisasm is not installed.
    TilewiseError
        If it can't read the machine code.
    """
    program = find_nvdisasm()
    if program is None:
        raise ImportError(f"nvdisasm is not installed: {INSTALL_HINT}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(compiled.cubin)
        result = subprocess.run(
            [str(program), "-c", str(file)],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    if result.returncode != 0:
        raise TilewiseError(f"nvdisasm can't read {compiled.name}: {result.stderr.strip()}")
    return list(_loops(result.stdout))


def _loops(text: str) -> Iterator[list[str]]:
    labels: dict[str, int] = {}
    opcodes: list[str] = []
    for row in text.splitlines():
        if label := _LABEL.match(row):
            labels[label[1]] = len(opcodes)
        elif instruction := _INSTRUCTION.match(row):
            opcodes.append(instruction[1])
            target = _TARGET.search(instruction[2])
            # A branch to itself follows the end of each kernel.
            if target and labels.get(target[1], len(opcodes)) < len(opcodes) - 1:
                yield opcodes[labels[target[1]] :]
