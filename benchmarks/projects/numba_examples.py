"""The examples of Numba's CUDA documentation (github.com/NVIDIA/numba-cuda), which are its tests.

Each runs whole, as it is, with what it asserts of its results itself. What it asks of a GPU besides
launches is stood in for: transfers, and which GPU it is. Not among them is test_random.py, which
draws 453 million numbers. Needs numba-cuda, and what its tests import: pytest, filecheck and cffi.
"""

from __future__ import annotations

import contextlib
import io
import runpy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numba import cuda
from numba.cuda import dispatcher, testing
from numba.cuda.tests import support

import tilewise
import tilewise.numba
from projects.case import Array, Program
from tilewise.devices import Device
from tilewise.launch import LaunchReport

FOLDER = "numba_cuda/numba/cuda/tests/doc_examples"


class OnDevice(np.ndarray[Any, Any]):
    """A NumPy array whose memory is the emulator's."""

    memory: Any = None

    def __array_finalize__(self, source: Any) -> None:
        self.memory = getattr(source, "memory", None)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = self.__array_interface__
        begin = self.memory.allocation.data.__array_interface__["data"][0]
        address = self.memory.pointer + found["data"][0] - begin
        return {
            "shape": self.shape, "strides": self.strides, "typestr": found["typestr"],
            "data": (address, False), "version": 3,
        }  # fmt: skip

    def copy_to_host(self, ary: Array | None = None, stream: object = 0) -> Array:
        """Return a copy, or write one to ``ary``."""
        found = np.array(self) if ary is None else ary
        found[...] = self
        return found

    def copy_to_device(self, ary: Array, stream: object = 0) -> None:
        """Copy from an array."""
        self[...] = ary


@contextlib.contextmanager
def launched_on(device: Any) -> Iterator[list[LaunchReport]]:
    """Launch every kernel of Numba's on an emulator, within a ``with`` statement."""
    reports: list[LaunchReport] = []

    def to_device(obj: Any, stream: object = 0) -> OnDevice:
        memory = device.array(np.ascontiguousarray(obj))
        data = memory.allocation.data
        found = np.ndarray.__new__(OnDevice, memory.shape, memory.dtype, data, 0, memory.strides)
        found.memory = memory
        return found

    def device_array(shape: Any, dtype: Any = np.float64, stream: object = 0) -> OnDevice:
        return to_device(np.zeros(shape, dtype))

    def device_array_like(ary: Any, stream: object = 0) -> OnDevice:
        return to_device(np.zeros_like(ary))

    def launch(configured: Any, *args: Any) -> None:
        plain = [np.asarray(x) if isinstance(x, OnDevice) else x for x in args]
        reports.append(tilewise.numba.launch(configured, *plain, device=device, checks="collect"))

    def declare(dispatched: Any, types: tuple[Any, ...]) -> None:
        most = SimpleNamespace(max_cooperative_grid_blocks=lambda block: 132 * 2048 // block)
        dispatched.overloads[types] = most

    with contextlib.ExitStack() as stack:
        for function in (to_device, device_array, device_array_like):
            stack.enter_context(mock.patch.object(cuda, function.__name__, function))
        for kind in (dispatcher.ForAll, dispatcher._LaunchConfiguration):
            stack.enter_context(mock.patch.object(kind, "__call__", launch))
        # A test is skipped where the GPU is too old, or a library for its linker is missing.
        for name, found in (("cc_X_or_above", True), ("cudadevrt_missing", False)):
            stack.enter_context(mock.patch.object(testing, name, return_value=found))
        # Where a signature is declared, Numba compiles at once, for the GPU that is there.
        stack.enter_context(mock.patch.object(dispatcher.CUDADispatcher, "compile", declare))
        # What the examples print is looked at here.
        stack.enter_context(mock.patch.object(support, "captured_stdout", contextlib.nullcontext))
        yield reports


def in_pairs(texts: Sequence[str]) -> bool:
    """Say whether each is followed by its like, up to an empty one."""
    *texts, last = texts
    return len(texts) > 0 and texts[::2] == texts[1::2] and not last


def example(file: str, test: str, kernels: str, fault: str, arch: str) -> Program:
    """Return a test of a file, on an architecture."""

    def run(
        path: Path, device: Device, rng: np.random.Generator
    ) -> tuple[Sequence[LaunchReport], str]:
        place, _, name = test.rpartition(".")
        with launched_on(device) as reports, contextlib.redirect_stdout(io.StringIO()) as text:
            module = runpy.run_path(str(path))
            tried: Callable[[], Any] = module[place](name).debug if place else module[name]
            try:
                tried()
            except AssertionError as error:
                return reports, f"its own assertion fails: {str(error).strip()}"
        # Some print a result, and do not assert it.
        is_right = file not in PRINTED or PRINTED[file](text.getvalue())
        return reports, "" if is_right else f"it prints {text.getvalue()}"

    return Program(f"{FOLDER}/{file}", kernels, run, arch, fault)


EXAMPLES = (
    ("test_cg.py", "TestCooperativeGroups.test_ex_grid_sync", "sequential_rows"),
    ("test_cpointer.py", "TestCPointer.test_ex_cpointer", "add_one"),
    ("test_cpu_gpu_compat.py", "TestCpuGpuCompat.test_ex_cpu_gpu_compat", "f"),
    ("test_ffi.py", "TestFFI.test_ex_linking_cu", "multiply_vectors"),
    ("test_ffi.py", "TestFFI.test_ex_from_buffer", "reduction_caller"),
    ("test_ffi.py", "TestFFI.test_ex_extra_includes", "vector_saxpy"),
    ("test_globals.py", "TestGlobals.test_ex_globals_constant_capture", "compute_totals"),
    ("test_globals.py", "TestGlobals.test_ex_globals_device_array_capture", "compute_totals"),
    ("test_laplace.py", "TestLaplace.test_ex_laplace", "solve_heat_equation"),
    ("test_matmul.py", "test_matmul", "matmul, fast_matmul"),
    (
        "test_montecarlo.py",
        "TestMonteCarlo.test_ex_montecarlo",
        "mc_integrator_kernel, a reduction",
    ),
    ("test_reduction.py", "TestReduction.test_ex_reduction", "array_sum"),
    ("test_sessionize.py", "TestSessionization.test_ex_sessionize", "sessionize"),
    ("test_ufunc.py", "TestUFunc.test_ex_cuda_ufunc_call", "f"),
    ("test_vecadd.py", "TestVecAdd.test_ex_vecadd", "f"),
)
PRINTED: dict[str, Callable[[str], bool]] = {
    "test_cpointer.py": lambda text: text.endswith(f"{np.arange(1, 11)}\n"),
    "test_matmul.py": lambda text: in_pairs(text.split("]]\n")),
}
FAULTS = {
    "test_montecarlo.py": "the result is right, but in Numba's reduction two threads alone wait at "
    "a syncwarp() for the whole warp",
}
CASES = tuple(
    example(file, test, kernels, FAULTS.get(file, ""), arch)
    for file, test, kernels in EXAMPLES
    for arch in ("sm_80", "sm_90a")
)
