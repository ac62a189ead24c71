"""Kernels compiled into the cache on disk before anybody waits for them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product as combinations
from typing import Any

from tilewise import compiler
from tilewise.arrays.operands import first_gpu
from tilewise.compiler import ahead, cache
from tilewise.devices import limits
from tilewise.explanation import LAYOUTS, of_shape
from tilewise.gemm.chip import H200, OLDEST, Chip
from tilewise.gemm.every import every_kernel
from tilewise.gemm.plan import chip_of, kernels_of
from tilewise.gemm.product import DTYPES
from tilewise.kernel import Kernel
from tilewise.shown import Part, Shown, duration, plural
from tilewise.tracebacks import front_door


@dataclass(frozen=True, repr=False)
class Warmed(Shown):
    """What :func:`warm` did.

    Attributes
    ----------
    arch : str
        What the kernels are compiled for.
    chip : str
        The GPU that was planned for.
    folder : str
        Where the cache is.
    kernels : int
        How many there are.
    compiled : int
        How many of them were compiled now; the others were there before.
    failures : tuple of str
        Why a kernel is not in the cache now, a line each; empty where all are.
    bytes : int
        Of all the kernels' files.
    seconds : float
    asked : str or None
        The architecture that was asked for; None where none was.
    """

    arch: str
    chip: str
    folder: str
    kernels: int
    compiled: int
    failures: tuple[str, ...]
    bytes: int
    seconds: float
    asked: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all of them are in the cache now."""
        return not self.failures

    @property
    def title(self) -> str:
        """How many kernels there are, of which GPU, and for which architecture."""
        of_gpu = "" if self.chip == self.arch else f" of {self.chip},"
        return f"{plural(self.kernels, 'kernel')}{of_gpu} for {self.arch}"

    @property
    def why_arch(self) -> str:
        """Why another architecture is compiled for than was asked for; empty where none is."""
        if self.asked in (None, self.arch):
            return ""
        capability = limits.compute_capability(self.arch)
        return (
            f"{self.asked} was asked for: on a GPU of compute capability {capability // 10}."
            f"{capability % 10}, matmul takes kernels for {self.arch}, which has every instruction "
            "of that GPU"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"ok": self.ok, **asdict(self), "why_arch": self.why_arch}

    def _summary(self) -> str:
        return (
            f"{self.title}: {self.compiled:,} compiled in {duration(self.seconds)}, "
            f"{len(self.failures):,} failed"
        )

    def _parts(self) -> list[Part]:
        kept = f"{self.bytes / 2**20:.1f} MiB in {self.folder}"
        return [self._summary(), *filter(None, [self.why_arch]), kept, *self.failures]


@front_door
def warm(
    sizes: Iterable[tuple[int, int, int]] | None = None,
    *,
    dtypes: Sequence[str] = DTYPES,
    layouts: Sequence[str] = LAYOUTS,
    arch: str | None = None,
    workers: int | None = None,
    step: Callable[[int, int], object] = lambda done, total: None,
) -> Warmed:
    """Compile what :func:`tilewise.matmul` may ask for into the cache on disk, on several cores.

    Needs no GPU: a container's image can be made with the kernels in it, with
    ``TILEWISE_CACHE_DIR`` in the image.

    Parameters
    ----------
    sizes : iterable of (m, n, k), optional
        Of the products; by default the kernels of :func:`tilewise.gemm.every.every_kernel`.
    dtypes : sequence of str
        Of A and B.
    layouts : sequence of str
        With ``sizes``: A's letter and B's, T for stored transposed.
    arch : str, optional
        Of the GPU, as ``"sm_90"``; by default of the one that is here, or of an H200. Where no such
        GPU is here, kernels are those of one with an H200's multiprocessors.
    workers : int, optional
        How many threads compile at most; by default one for each core, up to 16.
    step : callable
        Called with how many kernels are done, and how many there are.

    Returns
    -------
    Warmed

    Raises
    ------
    ValueError
        If a size, a dtype, a layout or the architecture is not a valid one.
    OSError
        If the cache can't be written.
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    begun, asked = time.perf_counter(), arch
    arch, chip = _planned_for(asked)
    folder = _folder()
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}; it takes one of {', '.join(DTYPES)}")
    if sizes is None:
        kernels = list(every_kernel(chip, dtypes))
    else:
        every = combinations(map(_size, sizes), dtypes, layouts)
        products = [of_shape(*size, dtype, layout) for size, dtype, layout in every]
        kernels = list(kernels_of(chip, products))
    missing = [kernel for kernel in kernels if _bytes(kernel, arch) is None]
    done, lock = len(kernels) - len(missing), threading.Lock()
    step(done, len(kernels))

    def one_more() -> None:
        nonlocal done
        with lock:
            done += 1
            step(done, len(kernels))

    failures = ahead.compile_ahead(missing, arch, one_more, lines=False, workers=workers)
    found = [_bytes(kernel, arch) for kernel in kernels]
    lost = found.count(None) - len(failures)
    if lost > 0:
        failures.append(
            f"{lost:,} kernels were compiled and are not in the cache: is its disk full?"
        )
    return Warmed(
        arch=arch,
        chip="any GPU" if chip is None else chip.name,
        folder=folder,
        kernels=len(kernels),
        compiled=len(missing) - found.count(None),
        failures=tuple(failures),
        bytes=sum(size for size in found if size is not None),
        seconds=time.perf_counter() - begun,
        asked=asked,
    )


def _size(given: Iterable[int]) -> tuple[int, int, int]:
    try:
        m, n, k = given
    except (TypeError, ValueError):
        told = f"sizes has {given!r}; each of them is m, n and k of a product"
        raise ValueError(told) from None
    return m, n, k


def _planned_for(arch: str | None) -> tuple[str, Chip | None]:
    gpu = first_gpu()
    if gpu is not None and arch is None:
        return gpu.arch, chip_of(gpu)
    arch = arch or compiler.DEFAULT_ARCH
    compiler.check_architecture(arch)
    asked = limits.compute_capability(arch)
    arch = limits.best_architecture(asked, compiler.architectures())  # as on such a GPU
    if gpu is not None and arch == gpu.arch:
        return arch, chip_of(gpu)
    capability = limits.compute_capability(arch)
    if capability == H200.capability:
        return arch, H200
    return arch, Chip(arch, H200.multiprocessors, capability) if capability >= OLDEST else None


def _folder() -> str:
    """The cache's folder.

    Raises
    ------
    OSError
        If it can't be written.
    """
    place = cache.directory()
    if place is None:
        raise OSError("there is no home folder for the cache; set TILEWISE_CACHE_DIR to a folder")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise OSError(f"{place}, the cache's folder, can't be made: {why}") from None
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(f"{place}, the cache's folder, can't be written")
    return str(place)


def _bytes(kernel: Kernel, arch: str) -> int | None:
    return compiler.kept_bytes(kernel.request(arch, lines=False))
