"""The parts of CUDA's driver that a GPU needs: its context, errors in words, memory, arrays.

Nothing of CUDA is imported before :class:`Context` is made, so a machine without a driver can
import this module, and gets an error in plain words.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices.extents import extent, span
from tilewise.devices.tensor_maps import TensorMaps
from tilewise.errors import DeviceUnavailableError, KernelAssertError, LaunchError

# After one of these, the context answers every call with the same error (CUDA Driver API,
# CUresult: "the process must be terminated and relaunched").
_FATAL = {
    "CUDA_ERROR_ASSERT": "an assert in the kernel failed",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "the kernel overran its call stack",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "the kernel read or wrote outside every array",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "the kernel ran into an illegal instruction, or __trap()",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "the kernel used an address in the wrong memory",
    "CUDA_ERROR_INVALID_PC": "the kernel jumped outside its code",
    "CUDA_ERROR_LAUNCH_FAILED": (
        "the kernel was stopped by an exception: __trap(), or an access outside shared memory"
    ),
    "CUDA_ERROR_LAUNCH_TIMEOUT": "the kernel ran longer than this GPU's time limit",
    "CUDA_ERROR_MISALIGNED_ADDRESS": (
        "the kernel read or wrote at an address that is no multiple of the access's width"
    ),
}
_EMULATOR_HINT = 'the emulator (device="emulator") names the line, the thread and the index'


def load() -> tuple[Any, Any]:
    """Return ``cuda.core`` and ``cuda.bindings.driver``, with the driver initialised.

    Raises
    ------
    DeviceUnavailableError
        If the packages, the driver or a GPU is missing; the message says which.
    """
    try:
        core = import_module("cuda.core")
        driver = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DeviceUnavailableError(
            f"no GPU can be used: cuda-core is not installed ({error}); "
            "pip install cuda-core 'cuda-bindings==13.*'"
        ) from error
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # cuda-pathfinder, if libcuda is missing
        raise DeviceUnavailableError(
            "no GPU can be used: NVIDIA's driver is not installed on this machine (libcuda.so.1 "
            "was not found)"
        ) from error
    if status != driver.CUresult.CUDA_SUCCESS:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hidden = "" if visible is None else f"; CUDA_VISIBLE_DEVICES is {visible!r}"
        raise DeviceUnavailableError(
            "no GPU can be used: NVIDIA's driver is installed, but "
            + (
                f"shows no GPU{hidden}"
                if status == driver.CUresult.CUDA_ERROR_NO_DEVICE
                else f"does not start ({_words(driver, status)})"
            )
        )
    return core, driver


def _words(driver: Any, status: Any) -> str:
    _, text = driver.cuGetErrorString(status)
    return f"{status.name}: {text.decode() if text else 'unknown error'}"


class _Forks:
    """The number of forks that led to this process; reading it is faster than ``os.getpid``."""

    count = 0

    @classmethod
    def begin_anew(cls) -> None:
        """Count one more fork, in the child process."""
        cls.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Forks.begin_anew)


class Context:
    """The primary context of one GPU, the one that PyTorch and CuPy use too.

    Parameters
    ----------
    ordinal : int, optional
        The number of the GPU; by default the calling thread's current one, or the first.

    Raises
    ------
    DeviceUnavailableError
        If there is no such GPU, or it can't be used.
    """

    def __init__(self, ordinal: int | None = None) -> None:
        self.core, self.driver = load()
        self.tensor_maps = TensorMaps(self.driver)
        self.lost = ""
        self._forks = _Forks.count
        self._get_current = self.driver.cuCtxGetCurrent
        try:
            self.ordinal = int(self.core.Device(ordinal).device_id)
            self._handle = self.call("cuDevicePrimaryCtxRetain", self.call_device())
        except Exception as error:  # cuda.core's exception types are private
            which = "the GPU" if ordinal is None else f"GPU {ordinal}"
            raise DeviceUnavailableError(f"{which} can't be used: {error}") from error
        with self.current():
            self.device = self.core.Device(self.ordinal)
            self.device.set_current()
            # A stream that waits for the legacy default stream, on which PyTorch and CuPy work.
            self.stream = self.device.create_stream(
                options=self.core.StreamOptions(nonblocking=False)
            )

    def call_device(self) -> Any:
        return self.call("cuDeviceGet", self.ordinal)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it the calling thread's context, and restore the previous one afterwards.

        Raises
        ------
        LaunchError
            If an earlier error destroyed it.
        DeviceUnavailableError
            If this process was forked from the one that made it.
        """
        self.check_process()
        if self.lost:
            raise LaunchError(
                f"this process's GPU context was lost to an earlier error ({self.lost}); only a "
                "new process can use the GPU again"
            )
        self.call("cuCtxPushCurrent", self._handle)
        try:
            yield
        finally:
            self.driver.cuCtxPopCurrent()

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process made it, rather than one that it was forked from."""
        return _Forks.count == self._forks

    def check_process(self) -> None:
        """Raise DeviceUnavailableError if this process was forked from the one that made it."""
        if not self.is_of_this_process:
            raise DeviceUnavailableError(
                "the GPU can't be used in this process: it was forked from one that had started "
                "the GPU already, and CUDA does not survive a fork; start processes with "
                'multiprocessing.get_context("spawn")'
            )

    @contextmanager
    def relaxed_capture(self) -> Iterator[None]:
        """Allow this thread what the capture of a stream forbids, such as loading a kernel.

        The function is ``cuThreadExchangeStreamCaptureMode`` of the CUDA Driver API.
        """
        relaxed = self.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = self.call("cuThreadExchangeStreamCaptureMode", relaxed)
        try:
            yield
        finally:
            self.call("cuThreadExchangeStreamCaptureMode", before)

    @property
    def is_ready(self) -> bool:
        """Whether :meth:`current` has nothing to do, and nothing to refuse, in this thread."""
        return (
            not self.lost and _Forks.count == self._forks and self._get_current()[1] == self._handle
        )

    def call(self, function: str, *args: Any) -> Any:
        """Call a function of the driver; return its value, or a tuple of several values.

        Raises
        ------
        MemoryError
            If the GPU does not have enough memory.
        KernelAssertError
            If an ``assert`` in a kernel failed.
        LaunchError
            If it failed in another way.
        """
        status, *values = getattr(self.driver, function)(*args)
        if status == self.driver.CUresult.CUDA_SUCCESS:
            return values[0] if len(values) == 1 else tuple(values)
        raise self.error(status, function, args)

    def error(self, status: int, function: str, args: tuple[Any, ...] = ()) -> Exception:
        """Return the exception for a status of the driver; :meth:`call` lists them."""
        status = self.driver.CUresult(status)
        name = getattr(status, "name", str(status))
        if name == "CUDA_ERROR_OUT_OF_MEMORY":
            return MemoryError(f"the GPU has not enough memory for {function}{args}")
        if name not in _FATAL:
            return LaunchError(f"{function} failed with {_words(self.driver, status)}")
        self.lost = name
        kind = KernelAssertError if name == "CUDA_ERROR_ASSERT" else LaunchError
        return kind(
            f"{_FATAL[name]} ({name}); {_EMULATOR_HINT}. This process can't use the GPU any more, "
            "and its device arrays are lost"
        )

    def attribute(self, name: str) -> int:
        """Return a device attribute, by its name after ``CU_DEVICE_ATTRIBUTE_``."""
        which = getattr(self.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", which, self.call_device()))

    def synchronize(self) -> None:
        """Wait for everything in this context, including the work of other libraries."""
        self.call("cuCtxSynchronize")

    def allocate(self, size: int) -> Memory:
        """Allocate ``size`` bytes of device memory.

        Raises
        ------
        MemoryError
            If the GPU does not have as much.
        """
        with self.current():
            try:
                return Memory(self, size)
            except MemoryError:
                free, total = self.call("cuMemGetInfo")
                raise MemoryError(
                    f"the GPU has no {size:,} bytes left: {free:,} of its {total:,} are free"
                ) from None

    def upload(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        if data.size:
            with self.current():
                self.call("cuMemcpyHtoD", address, data.ctypes.data, data.size)

    def download(self, data: npt.NDArray[np.uint8], address: int) -> None:
        if data.size:
            with self.current():
                self.call("cuMemcpyDtoH", data.ctypes.data, address, data.size)


class Memory:
    """Device memory that is freed with the last reference to it.

    ``cuMemAlloc`` allocates it, at least 256-byte aligned. It is freed only when no stream of any
    library can still use it.
    """

    def __init__(self, context: Context, size: int) -> None:
        self.context = context
        self.size = size
        self.address = 0
        if not size:
            return
        # The finalizer is registered before the allocation, and map() stores the result in one step
        # of C, so that Ctrl-C can't lose the address.
        answers: list[tuple[Any, Any]] = []
        weakref.finalize(self, _free, context, answers).atexit = False
        answers.extend(map(context.driver.cuMemAlloc, (size,)))
        status, address = answers[0]
        if status != context.driver.CUresult.CUDA_SUCCESS:
            raise context.error(status, "cuMemAlloc", (size,))
        self.address = int(address)


def _free(context: Context, answers: list[tuple[Any, Any]]) -> None:
    """Free the memory that ``cuMemAlloc`` answered with, if it did."""
    if context.lost or not context.is_of_this_process:
        return
    for status, address in answers:
        if status == context.driver.CUresult.CUDA_SUCCESS:
            with context.current():
                context.driver.cuMemFree(address)


class GpuArray:
    """An array on the GPU, whose rows are ``strides[0]`` bytes apart.

    :meth:`tilewise.devices.gpu.Gpu.array` and ``empty`` make it. PyTorch and CuPy use it in place
    (``torch.as_tensor(x, device="cuda")``, ``cupy.asarray(x)``), by ``__cuda_array_interface__``.

    Attributes
    ----------
    shape : tuple of int
    strides : tuple of int
        The strides in bytes.
    dtype : numpy.dtype
    pointer : int
        The device address of the first element; 0 if there is none.
    """

    def __init__(
        self,
        memory: Memory,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self._memory = memory
        self.shape = shape
        self.strides = strides
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"GpuArray(shape={self.shape}, dtype={self.dtype}, strides={self.strides})"

    @property
    def pointer(self) -> int:
        return self._memory.address

    @property
    def context(self) -> Context:
        return self._memory.context

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "version": 3,
        }

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return a C-contiguous copy on the host.

        Raises
        ------
        LaunchError
            If the GPU's context was lost.
        """
        raw = np.empty(self._memory.size, np.uint8)
        with self.context.current():
            # PyTorch or CuPy may still be writing it.
            self.context.synchronize()
            self.context.download(raw, self.pointer)
        if not raw.size:  # with no elements, the strides may be anything
            return np.empty(self.shape, self.dtype)
        array: npt.NDArray[Any] = np.ndarray(self.shape, self.dtype, raw, 0, self.strides)
        return array if array.flags.c_contiguous else array.copy()


def array_on(context: Context, host: npt.NDArray[Any]) -> GpuArray:
    """Return a copy of ``host`` on the GPU, with the same row pitch."""
    data = span(host)
    memory = context.allocate(data.size)
    context.upload(memory.address, data)
    return GpuArray(memory, host.shape, host.strides, host.dtype)


class Staged:
    """The NumPy arrays of one launch, on the device while it runs.

    Arrays that share memory on the host share it on the device too, so that a kernel sees one array
    given twice, or two views of one array, as one.

    Attributes
    ----------
    addresses : list of int
        The device address of each array, in order; 0 for one with no elements.
    """

    def __init__(self, context: Context, arrays: Sequence[npt.NDArray[Any]]) -> None:
        self._context = context
        self._arrays = list(arrays)
        self._memories: list[Memory] = []
        self.addresses = [0] * len(self._arrays)
        extents = [extent(array) for array in self._arrays]
        order = sorted(
            (i for i, (begin, end) in enumerate(extents) if end > begin),
            key=lambda i: extents[i],
        )
        while order:
            begin, end = extents[order[0]]
            together = []
            while order and extents[order[0]][0] < end:
                together.append(order.pop(0))
                end = max(end, extents[together[-1]][1])
            memory = context.allocate(end - begin)
            self._memories.append(memory)
            done = begin
            for i in together:
                first, last = extents[i]
                self.addresses[i] = memory.address + first - begin
                if last > done:
                    fresh = span(self._arrays[i])[max(first, done) - first :]
                    context.upload(self.addresses[i] + last - first - fresh.size, fresh)
                    done = last

    def download(self) -> None:
        """Copy back the elements, and only those, of the arrays that can be written."""
        for array, address in zip(self._arrays, self.addresses, strict=True):
            if not array.flags.writeable or not address:
                continue
            if array.flags.c_contiguous:
                self._context.download(span(array), address)
            else:
                begin, end = extent(array)
                raw = np.empty(end - begin, np.uint8)
                self._context.download(raw, address)
                array[...] = np.ndarray(array.shape, array.dtype, raw, 0, array.strides)
