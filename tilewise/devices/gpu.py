"""An NVIDIA GPU, through cuda.core."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise import compiler
from tilewise.compiler import Compiled
from tilewise.devices import limits
from tilewise.devices.arguments import bind
from tilewise.devices.capture import advising, printed_by
from tilewise.devices.cuda import Context, GpuArray, array_on
from tilewise.devices.gpu_kernel import GpuKernel, has_module_variables, key_of, load
from tilewise.devices.gpu_module import GpuModule
from tilewise.devices.placement import Placed
from tilewise.devices.prepared import Prepared, Ready
from tilewise.devices.timing import Timer
from tilewise.errors import GpuTooOldError, LaunchError
from tilewise.launch import Launch, LaunchReport


class Gpu:
    """One NVIDIA GPU.

    Parameters
    ----------
    ordinal : int, optional
        The GPU's number; by default the calling thread's current GPU, or the first.

    Attributes
    ----------
    name : str
        ``"gpu"``.
    arch : str
        The architecture to compile for, as ``"sm_90a"``.
    description : str
        A description for people.
    multiprocessors : int
    max_shared : int
        Bytes of shared memory that a block can have, static and dynamic together.
    l2_bytes : int
    memory : int
        Bytes of it.

    Raises
    ------
    DeviceUnavailableError
        If cuda-core, the driver or a GPU is missing, NVRTC knows no architecture for it, or the
        driver is older than NVRTC's major version.
    """

    name = "gpu"

    def __init__(self, ordinal: int | None = None) -> None:
        self.context = context = Context(ordinal)
        self._timer = Timer(context)
        self._lock = threading.RLock()
        self._loaded: dict[tuple[bytes, str], GpuKernel] = {}
        attribute = context.attribute
        major = attribute("COMPUTE_CAPABILITY_MAJOR")
        minor = attribute("COMPUTE_CAPABILITY_MINOR")
        self._capability = 10 * major + minor
        self.multiprocessors = attribute("MULTIPROCESSOR_COUNT")
        self.max_shared = attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self.l2_bytes = attribute("L2_CACHE_SIZE")
        with context.current():
            _, self.memory = map(int, context.call("cuMemGetInfo"))
        driver = context.call("cuDriverGetVersion")
        self.description = (
            f"{context.device.name}, compute capability {major}.{minor}, "
            f"{self.multiprocessors} multiprocessors, {self.memory / 2**30:.0f} GiB, "
            f"driver for CUDA {driver // 1000}.{driver % 1000 // 10}"
        )
        try:
            self.arch = limits.best_architecture(self._capability, compiler.architectures())
        except ValueError as error:
            raise GpuTooOldError(f"{self.description} can't be used: {error}") from error
        # CUDA Compatibility, "Minor Version Compatibility": a driver runs what compilers of its own
        # major version and of earlier ones have made.
        compiled_by, _ = compiler.version()
        if driver // 1000 < compiled_by:
            raise GpuTooOldError(
                f"{self.description} can't be used: kernels that NVRTC {compiled_by} compiles need "
                f"a driver for CUDA {compiled_by}; update NVIDIA's driver"
            )

    def __repr__(self) -> str:
        return f"Gpu({self.description!r})"

    def __copy__(self) -> Gpu:
        """Return the device itself: a copy would not own its memory and its kernels."""
        return self

    def __deepcopy__(self, _: Any) -> Gpu:
        """Return the device itself: a copy would not own its memory and its kernels."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Raise TypeError: another process may have no such GPU."""
        raise TypeError(f"{self!r} can't be pickled; pickle the name of the device, 'gpu'")

    def array(self, host: npt.NDArray[Any]) -> GpuArray:
        """Return a copy of ``host`` on the GPU, its row pitch kept, 256-byte aligned.

        Raises
        ------
        ValueError
            If ``host`` is not row-contiguous (:func:`tilewise.devices.extents.extent`).
        MemoryError
            If it does not fit.
        """
        return array_on(self.context, host)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> GpuArray:
        """Return a C-contiguous array that nobody wrote yet.

        Raises
        ------
        ValueError
            If an extent is negative.
        MemoryError
            If it does not fit.
        """
        kind = np.dtype(dtype)
        if any(extent < 0 for extent in shape):
            raise ValueError(f"shape {shape} has a negative extent")
        sizes = (*shape[1:], 1)
        strides = tuple(kind.itemsize * math.prod(sizes[i:]) for i in range(len(shape)))
        memory = self.context.allocate(kind.itemsize * math.prod(shape))
        return GpuArray(memory, tuple(shape), strides, kind)

    def module(self, compiled: Compiled) -> GpuModule:
        """Return the variables of a kernel's module, as the source initializes them.

        Raises
        ------
        LaunchError
            If the kernel can't be loaded.
        """
        with self._lock, self.context.current():
            loaded = self._load(compiled, fresh=True)
            return GpuModule(self.context, loaded.code, loaded)

    def launch(self, compiled: Compiled, launch: Launch) -> LaunchReport:
        """Launch, wait, report the kernel's time.

        NumPy arrays are copied in and, where they can be written, out; that is not in the time.
        Arrays of PyTorch, CuPy and others on this GPU are used where they lie, once all work on
        the GPU is done. Without a module of the launch's own, variables of the module start anew.

        Raises
        ------
        TypeError, ValueError
            If the arguments don't fit the parameters.
        MemoryError
            If the GPU has not enough memory for the arrays.
        LaunchError
            If a limit of the hardware forbids it, or the kernel failed; no NumPy array has
            changed then.
        KernelAssertError
            If an ``assert`` in the kernel failed.
        """
        arguments = bind(compiled.name, compiled.parameters, launch.args)
        with self._lock, self.context.current():
            if isinstance(launch.module, GpuModule):
                loaded = launch.module.loaded
            else:
                loaded = self._load(compiled, fresh=has_module_variables(compiled.ptx))
            self._check(loaded, launch)
            placed = Placed(self.context, compiled.name, arguments)
            with printed_by(compiled) as output, advising(compiled, launch):
                ready = Ready(self.context, loaded.function, launch, placed.values)
                seconds = self._timer.seconds(ready.enqueue)
            placed.download()
        return LaunchReport(
            device=self.name,
            kernel=compiled.name,
            launch=replace(launch, args=(), module=None),
            resources=compiled.resources,
            seconds=seconds,
            output=output.printed,
            remarks=compiled.remarks,
            arch=compiled.arch,
        )

    def measure(
        self,
        compiled: Compiled,
        launch: Launch,
        *,
        rounds: int = 5,
        minimum_seconds: float = 0.02,
        flush: bool = False,
    ) -> float:
        """Return the median over ``rounds`` of the seconds that one launch takes.

        A round is as many launches, one after another, as take ``minimum_seconds``; those under
        50 µs are launched inside a CUDA graph. NumPy arrays are copied in once, and not out.

        Parameters
        ----------
        compiled : Compiled
        launch : Launch
        rounds : int
            At least one; five or more for a figure to report.
        minimum_seconds : float
            How long a round takes at least.
        flush : bool
            Overwrite the L2 cache before each launch, and time each by itself.

        Raises
        ------
        ValueError
            If ``rounds`` is below one.
        TypeError, ValueError, MemoryError, LaunchError
            As :meth:`launch`.
        """
        if rounds < 1:
            raise ValueError(f"rounds is {rounds}; it takes at least one")
        arguments = bind(compiled.name, compiled.parameters, launch.args)
        with self._lock, self.context.current():
            loaded = self._load(compiled)
            self._check(loaded, launch)
            placed = Placed(self.context, compiled.name, arguments)
            measure = self._timer.median_flushed if flush else self._timer.median
            ready = Ready(self.context, loaded.function, launch, placed.values)
            return measure(ready.enqueue, rounds, minimum_seconds)

    def prepare(self, compiled: Compiled, launch: Launch) -> Prepared:
        """Check a launch once, to be enqueued any number of times, each with its own addresses.

        Safe while a stream is being captured into a CUDA graph.

        Parameters
        ----------
        compiled : Compiled
        launch : Launch
            Its arguments are numbers, addresses, structures, and for what is given only when it
            is enqueued, :class:`tilewise.places.Place`, ``Packed`` and ``TensorMap``.

        Raises
        ------
        TypeError, ValueError
            If the arguments don't fit the parameters, or the driver takes no such tensor map.
        LaunchError
            If a limit of the hardware forbids it.
        DeviceUnavailableError
            In a process forked from the one that started the GPU.
        """
        with self._lock:
            loaded = self._loaded.get(key_of(compiled))
            if loaded is not None and self.context.is_ready and loaded.has_opted_in(launch.shared):
                self._check(loaded, launch)
                return Prepared(self.context, compiled, loaded.function, launch)
            with self.context.current(), self.context.relaxed_capture():
                loaded = self._load(compiled)
                self._check(loaded, launch)
                return Prepared(self.context, compiled, loaded.function, launch)

    def enqueue(self, prepared: Prepared, stream: int, addresses: Sequence[int] = ()) -> None:
        """Launch on a stream of this GPU's primary context, and do not wait.

        Safe while the stream is being captured into a CUDA graph, and from several threads.

        Parameters
        ----------
        prepared : Prepared
            A launch prepared for this GPU.
        stream : int
            The driver's handle; 0 is the default stream.
        addresses : sequence of int
            The addresses of the arrays that the launch's places are in. The caller keeps them
            alive.

        Raises
        ------
        LaunchError
            If an earlier kernel failed.
        ValueError
            If the driver takes no tensor map at such an address.
        DeviceUnavailableError
            In a process forked from the one that started the GPU.
        """
        if self.context.is_ready:
            prepared.enqueue(stream, addresses)
        else:
            with self.context.current():
                prepared.enqueue(stream, addresses)

    def blocks_per_multiprocessor(self, compiled: Compiled, threads: int, shared: int = 0) -> int:
        """Return the occupancy by the driver: resident blocks of ``threads`` a multiprocessor.

        Returns
        -------
        int
            0 where such a block can't be launched at all.

        Raises
        ------
        ValueError
            If ``threads`` is below 1 or ``shared`` negative.
        """
        if threads < 1 or shared < 0:
            raise ValueError(f"a block of {threads:,} threads with {shared:,} bytes is none")
        with self._lock, self.context.current():
            loaded = self._load(compiled)
            if threads > loaded.max_threads or shared + loaded.static_shared > self.max_shared:
                return 0
            loaded.opt_in(self.context, shared)
            return loaded.occupancy(self.context, threads, shared)

    def free_memory(self) -> int:
        """Return how many bytes of its memory are free."""
        with self._lock, self.context.current():
            free, _ = self.context.call("cuMemGetInfo")
        return int(free)

    def _load(self, compiled: Compiled, fresh: bool = False) -> GpuKernel:
        key = key_of(compiled)
        if not fresh and key in self._loaded:
            return self._loaded[key]
        try:
            loaded = load(self.context, compiled, self._capability)
        except Exception as error:  # cuda.core's exception types are private
            raise LaunchError(
                f"{compiled.name}, compiled for {compiled.arch}, can't be loaded on "
                f"{self.description}; compile it for {self.arch} ({error})"
            ) from error
        if not fresh:
            self._loaded[key] = loaded
        return loaded

    def _check(self, loaded: GpuKernel, launch: Launch) -> None:
        limits.check_launch(
            launch,
            loaded.static_shared,
            max_shared=self.max_shared,
            max_threads=loaded.max_threads,
        )
        loaded.opt_in(self.context, launch.shared)
        if launch.cooperative:
            each = loaded.occupancy(self.context, math.prod(launch.block), launch.shared)
            limits.check_together(launch, each, self.multiprocessors, "this GPU")
