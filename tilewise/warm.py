"""Compile kernels into the cache on disk before any call needs them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product as combinations
from typing import Any

from tilewise import compiler
from tilewise.arrays.operands import first_gpu
from tilewise.compiler import ahead, cache
from tilewise.devices import limits
from tilewise.explanation import LAYOUTS, Explanation, check_groups, of_groups, of_shape
from tilewise.gemm.chip import H200, OLDEST, Chip
from tilewise.gemm.every import every_grouped_kernel, every_kernel
from tilewise.gemm.grouped.product import OFFSET_TYPES, AnyProduct
from tilewise.gemm.plan import chip_of, kernels_of
from tilewise.gemm.product import DTYPES
from tilewise.kernel import Kernel
from tilewise.shown import Part, Shown, duration, plural
from tilewise.tracebacks import front_door


@dataclass(frozen=True, repr=False)
class Warmed(Shown):
    """The result of :func:`warm`.

    Attributes
    ----------
    arch : str
        The architecture that the kernels are compiled for.
    chip : str
        The name of the GPU that the kernels were planned for.
    folder : str
        The folder of the cache.
    kernels : int
        The number of kernels.
    compiled : int
        The number of kernels that this call compiled and put into the cache.
    before : int
        The number of kernels that were in the cache before the call.
    failures : tuple of str
        The reasons why kernels are not in the cache now, a line each; empty if all are.
    bytes : int
        The bytes of all the kernels' files.
    seconds : float
    asked : str or None
        The architecture that was asked for; None if none was.
    """

    arch: str
    chip: str
    folder: str
    kernels: int
    compiled: int
    before: int
    failures: tuple[str, ...]
    bytes: int
    seconds: float
    asked: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all kernels are in the cache now."""
        return not self.failures

    @property
    def title(self) -> str:
        """The number of kernels, the GPU, and the architecture, as text."""
        of_gpu = "" if self.chip == self.arch else f" of {self.chip},"
        return f"{plural(self.kernels, 'kernel')}{of_gpu} for {self.arch}"

    @property
    def why_arch(self) -> str:
        """Why it compiled for another architecture than was asked for; empty if it did not."""
        if self.asked in (None, self.arch):
            return ""
        capability = limits.compute_capability(self.arch)
        return (
            f"{self.asked} was asked for: on a GPU of compute capability {capability // 10}."
            f"{capability % 10}, matmul takes kernels for {self.arch}, which has every instruction "
            "of that GPU"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
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
    sizes: Iterable[tuple[int, int, int] | Explanation] | None = None,
    *,
    groups: Iterable[int] | None = None,
    dtypes: Iterable[str] = DTYPES,
    layouts: Iterable[str] | None = None,
    arch: str | None = None,
    workers: int | None = None,
    step: Callable[[int, int], object] = lambda done, total: None,
) -> Warmed:
    """Compile the kernels of products into the cache on disk, on several cores.

    Later calls of :func:`tilewise.matmul`, or of :func:`tilewise.grouped_matmul`, with these
    products find them there.

    It uses several cores and needs no GPU. A container's image can be made with the kernels in it,
    if ``TILEWISE_CACHE_DIR`` is in the image.

    Parameters
    ----------
    sizes : iterable of (m, n, k) or Explanation, optional
        The sizes of the products; by default it compiles the kernels of
        :func:`tilewise.gemm.every.every_kernel`. What :func:`tilewise.explain` returns stands for
        the product that it explains, with that product's dtypes, strides and epilogue. This is how
        kernels with an epilogue are compiled beforehand.
    groups : iterable of int, optional
        The numbers of groups of grouped products. Their kernels are compiled, and no others. m
        counts the rows of all groups. With ``sizes`` the kernels are those of the product and of
        the gradients of x and w, for int32 and int64 offsets.
    dtypes : iterable of str
        The dtypes of A and B, except for explanations, which have their own.
    layouts : iterable of str, optional
        The layouts of products given by ``sizes``: A's letter and B's, T for stored transposed. By
        default they are all of them, and with ``groups`` NN and NT, in which x is stored by rows.
    arch : str, optional
        The architecture of the GPU, as in ``"sm_90"``; by default that of the GPU of this machine,
        or of an H200. If this machine has no such GPU, the kernels are those for a GPU with an
        H200's number of multiprocessors.
    workers : int, optional
        The most threads that compile, at least 1; by default one for each core, up to 16.
    step : callable
        A function that is called with the number of kernels that are done, and of all kernels.

    Returns
    -------
    Warmed

    Raises
    ------
    ValueError
        If a size, a number of groups or of threads, a dtype, a layout or the architecture is not a
        valid one, or ``layouts`` is given without ``sizes``.
    TypeError
        If a size or a number of groups or of threads is not an integer, or ``sizes``, ``groups``,
        ``dtypes`` or ``layouts`` is not iterable, or a string.
    OSError
        If the cache can't be written.
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    begun, asked = time.perf_counter(), arch
    if sizes is not None and not isinstance(sizes, Iterable):
        raise TypeError(f"sizes is {sizes!r}; it takes products, as in [(m, n, k)]")
    if groups is not None and not isinstance(groups, Iterable):
        raise TypeError(f"groups is {groups!r}; it takes numbers of groups, as in [8]")
    ahead.check_workers(workers)
    dtypes = _several("dtypes", dtypes, "float16")
    if layouts is not None:
        layouts = _several("layouts", layouts, "NN")
        if sizes is None:
            raise ValueError("layouts is for given products; give sizes too")
    arch, chip = _planned_for(asked)
    folder = _folder()
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}; it takes one of {', '.join(DTYPES)}")
    counts = None if groups is None else list(groups)
    for count in counts or ():
        check_groups(count)
    if counts == []:
        raise ValueError("groups is empty; give the numbers of groups")
    if sizes is not None:
        products = list(_products(sizes, counts, dtypes, layouts))
        kernels = list(kernels_of(chip, products))
    elif counts is not None:
        kernels = list(every_grouped_kernel(chip, counts, dtypes))
    else:
        kernels = list(every_kernel(chip, dtypes))
    missing = [kernel for kernel in kernels if _bytes(kernel, arch) is None]
    before, lock = len(kernels) - len(missing), threading.Lock()
    done = before
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
            f"of the compiled kernels, {lost:,} are not in the cache: is its disk full?"
        )
    return Warmed(
        arch=arch,
        chip="any GPU" if chip is None else chip.name,
        folder=folder,
        kernels=len(kernels),
        compiled=len(missing) - found.count(None),
        before=before,
        failures=tuple(failures),
        bytes=sum(size for size in found if size is not None),
        seconds=time.perf_counter() - begun,
        asked=asked,
    )


def _several(name: str, given: Iterable[str], one: str) -> list[str]:
    """Return what an argument holds; raise TypeError for a single string."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{name} is {given!r}; it takes a list, as in [{one!r}]")
    return list(given)


def _products(
    sizes: Iterable[Any],
    groups: Sequence[int] | None,
    dtypes: Sequence[str],
    layouts: Sequence[str] | None,
) -> Iterator[AnyProduct]:
    """Yield the products that kernels are compiled for."""
    for given in sizes:
        if isinstance(given, Explanation):
            yield given.product
            continue
        m, n, k = _size(given)
        if groups is None:
            for dtype, layout in combinations(dtypes, LAYOUTS if layouts is None else layouts):
                yield of_shape(m, n, k, dtype, layout)
            continue
        for count, dtype, offsets in combinations(groups, dtypes, OFFSET_TYPES):
            for layout in ("NN", "NT") if layouts is None else layouts:
                is_transposed = layout.endswith("T")  # whether w is stored as (groups, n, k)
                of_x = "NN" if is_transposed else "NT"  # of the product for the gradient of x
                yield of_groups(m, n, k, count, dtype, layout, offset_dtype=offsets)
                yield of_groups(m, k, n, count, dtype, of_x, offset_dtype=offsets)
                # The gradient of w is stored as w is.
                rows, columns = (n, k) if is_transposed else (k, n)
                yield of_groups(rows, columns, m, count, dtype, of="k", offset_dtype=offsets)


def _size(given: Iterable[int]) -> tuple[int, int, int]:
    try:
        m, n, k = given
    except (TypeError, ValueError):
        told = (
            f"sizes has {given!r}; each of them is m, n and k of a product, or what explain returns"
        )
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
    """Return the folder of the cache.

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
