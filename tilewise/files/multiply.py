"""The front door of products in files: names of files in, a file out."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewise import sizes
from tilewise.arrays import own_product
from tilewise.arrays.operands import first_gpu
from tilewise.devices import get_device
from tilewise.devices.gpu import Gpu
from tilewise.errors import DeviceUnavailableError
from tilewise.files import memory as memories
from tilewise.files.execute import Multiplier, OnDevice, OnHost, execute
from tilewise.files.npy import MatrixFile, Target
from tilewise.files.result import FileProduct
from tilewise.files.sample import check_sample
from tilewise.files.unfinished import Unfinished
from tilewise.gemm.blocking import BlockPlan, Problem, choose
from tilewise.gemm.product import ACCUMULATORS
from tilewise.ladder.matrix_files import check_npy_target
from tilewise.numbers import Check
from tilewise.shown import named_type, plural
from tilewise.tracebacks import front_door

DEVICES = ("auto", "gpu", "host")

_MOST_PRODUCTS = 10**7  # each takes some ten microseconds, however small it is

Progress = Callable[[int, int], None]


@front_door
def multiply_files(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    memory: int | str | None = None,
    max_gpu_memory: int | str | None = None,
    device: str = "auto",
    force: bool = False,
    resume: bool = False,
    check: bool = False,
    progress: Progress | None = None,
) -> FileProduct:
    """Multiply two matrices in ``.npy`` files, of any size, into a third file.

    The matrices are cut into pieces that fit into ``memory``, in the order that reads and writes
    the fewest bytes. The result appears under its name when all of it is on the disk.

    Parameters
    ----------
    a, b : path, of (m, k) and (k, n) matrices
        ``.npy`` files in C or Fortran order and either byte order, of float16, float32 or float64,
        both the same; float16 is summed in float32.
    out : path
        The file for C, (m, n), in C order, of the same dtype; its name ends in ``.npy``.
        ``OUT.part`` and ``OUT.journal`` are beside it until it is complete, and ``OUT.lock`` while
        a process writes them.
    memory : int or str, optional
        The most of the host's memory for the pieces: bytes, or ``"4GB"``, ``"512MiB"``. By default
        it is the free memory, less a reserve of 1 GiB.
    max_gpu_memory : int or str, optional
        The most of the GPU's memory for the pieces, if a GPU computes; by default its free memory,
        less a reserve. Pieces that are larger are cut again.
    device : str
        ``"host"`` uses NumPy's product on the host's cores. ``"gpu"`` computes each piece by
        :func:`tilewise.matmul` on the GPU. ``"auto"`` uses the GPU if there is one, for float16 one
        of compute capability 8.0 or above.
    force : bool
        Whether to replace an existing file.
    resume : bool
        Whether to go on where an earlier run of the same product stopped, with its tiles, or to
        begin if there was none. Without it, what an earlier run left is removed.
    check : bool
        Whether to compare a sample of C with float64, by the bound of rounding, before it gets its
        name. A wrong result stays in ``OUT.part``.
    progress : callable, optional
        A function that is called with the multiply-adds that are done, and with all of them.

    Returns
    -------
    FileProduct

    Raises
    ------
    TypeError
        If the dtypes differ or are others than these, or an argument is no path.
    ValueError
        If a file does not contain a matrix or is truncated, the shapes don't fit, ``memory`` is not
        a size or too small, what is to be resumed is another product, or ``out`` does not end in
        ``.npy`` or is one of the inputs.
    OSError
        If a file can't be read or written, the output exists, or the disk has too little room.
    DeviceUnavailableError
        If a GPU was asked for and there is none.
    TilewiseError
        If another process writes the same output.

    Notes
    -----
    Where k is not divided, the elements of a tile are those of one product of its rows of A and
    columns of B, bit for bit; a BLAS may sum a product of another shape in another order. With
    the same tiles, two runs give the same bits, interrupted or not, if the BLAS does.

    Examples
    --------
    >>> import numpy as np, tempfile, tilewise
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/A.npy", np.eye(3))
    ...     np.save(f"{folder}/B.npy", np.arange(6.0).reshape(3, 2))
    ...     done = tilewise.multiply_files(
    ...         f"{folder}/A.npy", f"{folder}/B.npy", f"{folder}/C.npy", device="host"
    ...     )
    ...     print(np.load(f"{folder}/C.npy").tolist(), done.bytes_moved)
    [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]] 168
    """
    if device not in DEVICES:
        raise ValueError(f"device is {device!r}; it takes one of {', '.join(DEVICES)}")
    given = None if memory is None else memories.parse(memory)
    if max_gpu_memory is not None and device == "host":
        raise ValueError("max_gpu_memory is for a GPU, and device is 'host'")
    on_gpu = None if max_gpu_memory is None else sizes.parse(max_gpu_memory, "max_gpu_memory")
    at_a, at_b, at_out = _path(a, "a"), _path(b, "b"), _path(out, "out")
    output = _output(at_out, {"A": at_a, "B": at_b}, force)
    with MatrixFile(at_a, "A") as of_a, MatrixFile(at_b, "B") as of_b:
        _check_operands(of_a, of_b)
        gpu = _gpu(device, of_a.header.name)
        run = _Run(of_a, of_b, output, gpu, given, on_gpu, progress or (lambda done, total: None))
        with run.files.locked():
            return run.carry_out(str(out), resume, check)


def _path(given: str | os.PathLike[str], what: str) -> Path:
    """Return an argument as a path; raise TypeError for anything else, as an array."""
    if not isinstance(given, str | os.PathLike):
        raise TypeError(
            f"{what} is {named_type(given)}; it takes the path of a .npy file, and tilewise.matmul "
            "takes arrays"
        )
    return Path(given)


def _output(out: Path, inputs: Mapping[str, Path], force: bool) -> Path:
    """Return the resolved path of the result, after checks that it can be written; read no file."""
    check_npy_target(out)
    files = Unfinished(out.resolve())
    for what, path in inputs.items():
        if out.exists() and path.exists() and out.samefile(path):
            raise ValueError(f"the output {out} is {what} itself; name another file")
        for beside in files.beside:
            if beside.exists() and path.exists() and beside.samefile(path):
                raise ValueError(
                    f"{what} is {path}, and {beside.name} is where {out} is written until it is "
                    "complete; name another output"
                )
    if out.exists() and not force:
        raise FileExistsError(f"{out} is there already; force=True replaces it")
    return files.output


def _check_operands(a: MatrixFile, b: MatrixFile) -> None:
    """Raise ValueError if the shapes don't fit, and TypeError if the dtypes differ."""
    (m, k), (rows, n) = a.header.shape, b.header.shape
    if k != rows:
        raise ValueError(
            f"A is {m:,} x {k:,} and B is {rows:,} x {n:,}; A must have as many columns as B has "
            f"rows, and {k:,} is not {rows:,}"
        )
    if a.header.name != b.header.name:
        raise TypeError(f"A is {a.header.name} and B {b.header.name}; they must be the same")


def _gpu(device: str, dtype: str) -> Gpu | None:
    if device == "host":
        return None
    found = first_gpu()
    if device == "auto" and own_product.why_on_host(dtype, found):
        return None
    if found is None and device == "gpu":
        get_device("gpu")  # raises an error that says why
        raise DeviceUnavailableError("there is no GPU")
    return found


class _Run:
    """A product of files, as far as it is known before it begins."""

    def __init__(
        self,
        a: MatrixFile,
        b: MatrixFile,
        output: Path,
        gpu: Gpu | None,
        given: int | None,
        gpu_memory: int | None,
        progress: Progress,
    ) -> None:
        self.a, self.b, self.files, self.progress = a, b, Unfinished(output), progress
        self.gpu, self.device = gpu, "host" if gpu is None else "gpu"
        self.gpu_memory = gpu_memory
        self.budget = memories.default() if given is None else given
        self.dtype = a.header.name
        self.sums = ACCUMULATORS[self.dtype]
        (m, k), n = a.header.shape, b.header.shape[1]
        item, sums = np.dtype(self.dtype).itemsize, np.dtype(self.sums).itemsize
        casts = sums if gpu is None and item != sums else 0
        self.problem = Problem(m, n, k, item, sums, item, casts)
        self.room = self.budget
        self.notes: list[str] = []

    def carry_out(self, shown: str, resume: bool, wants_check: bool) -> FileProduct:
        """Make the output; ``shown`` is its name as it was given."""
        began = time.perf_counter()
        plan, first = self._earlier() if resume else (None, 0)
        if plan is None:
            plan = self._planned()
            if self.files.discard():
                self.notes.append("what an interrupted run had left was removed")
            elif resume:
                self.notes.append("there was nothing to resume: it began with the first tile")
        p = self.problem
        factors = self.sums if self.device == "host" else self.dtype
        multiply: Multiplier = (
            OnHost(plan, np.dtype(self.sums))
            if self.gpu is None
            else OnDevice(self.gpu, self.gpu_memory)
        )
        self._done = first
        try:
            self._check_room(p.m * p.n * p.out)
            with Target(self.files.part, (p.m, p.n), self.dtype, first == 0) as target:
                self._check_part(target)
                moved = execute(
                    plan, {"A": self.a, "B": self.b}, target, (self.sums, factors), multiply,
                    first=first, finished=lambda done: self._record(plan, done),
                    progress=self.progress,
                )  # fmt: skip
            for each in (self.a, self.b):
                each.check_unchanged()
            checked = self._checked() if wants_check else None
        except OSError as error:
            self._clean()
            raise self._with_hint(error, plan) from error
        except BaseException:
            self._clean()
            raise
        if checked is None or checked.correct:
            self.files.finish()
        else:
            self.files.journal.unlink(missing_ok=True)
            self.notes.append(f"the wrong result is in {self.files.part}")
        return FileProduct(
            shown, p.m, p.n, p.k, self.dtype, self.device, plan.block_m, plan.block_n,
            plan.block_k, plan.tiles, plan.pieces, first, plan.memory, self.budget, moved.read,
            moved.written, plan.bytes_moved, p.bound(self.budget), time.perf_counter() - began,
            checked, tuple(self.notes),
        )  # fmt: skip

    def _planned(self) -> BlockPlan:
        plan = choose(self.problem, self.room)
        if plan.tiles * plan.pieces > _MOST_PRODUCTS:
            raise ValueError(
                f"memory is {plural(self.room, 'byte')}, which cuts the product into "
                f"{plan.tiles * plan.pieces:,} of pieces; give so much that it is at most "
                f"{_MOST_PRODUCTS:,}"
            )
        return plan

    def _identity(self) -> dict[str, Any]:
        """Return what must be the same in the run that goes on."""
        return {"A": self.a.header.to_dict(), "B": self.b.header.to_dict(), "device": self.device}

    def _record(self, plan: BlockPlan, done: int) -> None:
        blocks = {
            "block_m": plan.block_m, "block_n": plan.block_n, "block_k": plan.block_k,
            "by_columns": plan.by_columns,
        }  # fmt: skip
        self.files.record({**self._identity(), "plan": blocks, "done": done})
        self._done = done

    def _earlier(self) -> tuple[BlockPlan | None, int]:
        """Return the interrupted run's plan, and how many of its tiles are done."""
        found = self.files.recorded()
        if found is None:
            return None, 0
        anew = "run it without resume=True to begin anew"
        for name, now in self._identity().items():
            if found.get(name) != now:
                what = (
                    f"{name} was another file, or was changed since" if name in "AB"
                    else f"it ran on {found.get(name)!r}, and this would be on {now!r}"
                )  # fmt: skip
                raise ValueError(
                    f"{self.files.journal} is of another run: {what}; give what it was made "
                    f"from, or {anew}"
                )
        try:
            plan, done = BlockPlan(self.problem, **found["plan"]), int(found["done"])
            is_good = min(plan.block_m, plan.block_n, plan.block_k) > 0 and 0 < done <= plan.tiles
        except (KeyError, TypeError, ValueError):
            is_good = False
        if not is_good:
            raise ValueError(f"{self.files.journal} is damaged; {anew}")
        if plan.memory > self.room:
            raise ValueError(
                f"memory is {plural(self.room, 'byte')}, and the tiles of the interrupted run take "
                f"{plan.memory:,}; give that much, or {anew}"
            )
        return plan, done

    def _check_part(self, target: Target) -> None:
        size = self.files.part.stat().st_size
        if size != target.size:
            raise ValueError(
                f"{self.files.part} has {plural(size, 'byte')}, and should have {target.size:,}; "
                "run it without resume=True to begin anew"
            )

    def _check_room(self, size: int) -> None:
        there = shutil.disk_usage(self.files.part.parent).free
        if self.files.part.exists():  # what it holds already; blocks are of 512 bytes
            there += getattr(self.files.part.stat(), "st_blocks", 0) * 512
        if size > there:
            raise OSError(
                errno.ENOSPC,
                f"C takes {plural(size, 'byte')}, and the disk has {there:,} left",
                str(self.files.part),
            )

    def _checked(self) -> Check:
        with MatrixFile(self.files.part, "C") as c:
            return check_sample(self.a, self.b, c, self.sums, self.budget)

    def _clean(self) -> None:
        """Leave nothing beside the output if no tile is finished that could be kept."""
        if not self._done:
            self.files.discard()

    def _with_hint(self, error: OSError, plan: BlockPlan) -> OSError:
        if not self._done or error.errno is None:
            return error
        hint = f"{self._done:,} of {plural(plan.tiles, 'tile')} are kept; resume=True goes on there"
        return type(error)(error.errno, f"{error.strerror}; {hint}", error.filename)
