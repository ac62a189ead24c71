"""A kernel, given by its name or itself, and how it is launched for a product."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tilewise.devices import Device
from tilewise.kernel import Kernel
from tilewise.ladder.geometry import (
    DEFAULT_SIZE,
    Geometry,
    Sizes,
    check_tile,
    columns_along_x,
    type_macros,
)
from tilewise.ladder.problem import Gemm
from tilewise.ladder.rungs import Rung, rung
from tilewise.ladder.signature import OTHERWISE, in_order
from tilewise.launch import DEFAULT_ARCH
from tilewise.places import TensorMap
from tilewise.targets import PTX_SUFFIX, SUFFIXES, check_is_file, split_target

DEFAULT_TILE, DEFAULT_DTYPE = 16, "float32"  # for a kernel that is not on the ladder


def arch_of(target: str | Rung | Kernel, asked: str | None) -> str:
    """Return the architecture that is asked for, or else the target's own."""
    found = kernel_of(target)
    return asked or (found.arch if isinstance(found, Kernel) else DEFAULT_ARCH)


def dtype_of(target: str | Rung | Kernel, asked: str | None) -> str:
    """Return the dtype that is asked for, or for None the target's own.

    Raises
    ------
    TypeError
        If the rung does not take it.
    """
    found = kernel_of(target)
    return found.dtype(asked) if isinstance(found, Rung) else asked or DEFAULT_DTYPE


def sizes_of(
    target: Rung | Kernel, m: int | None = None, n: int | None = None, k: int | None = None
) -> tuple[int, int, int]:
    """Return m, n and k as given, and for each None a size at which ``target`` works.

    Raises
    ------
    TypeError
        As in :func:`check_sizes`.
    """
    if isinstance(target, Rung):
        return target.sizes(m, n, k)
    check_sizes(m, n, k)
    rows, columns, depth = (DEFAULT_SIZE if size is None else size for size in (m, n, k))
    return rows, columns, depth


def check_sizes(m: object, n: object, k: object) -> None:
    """Raise TypeError if m, n or k is not an integer, for example the grid of a launch."""
    for name, size in (("m", m), ("n", n), ("k", k)):
        if size is not None and not hasattr(size, "__index__"):
            raise TypeError(f"{name} is {size!r}; a product's sizes are integers. {OTHERWISE}")


class Prepared(NamedTuple):
    """The launch of a kernel for a product.

    Attributes
    ----------
    kernel : Kernel
    tile : int or None
    geometry : (grid, block)
    shared : int
        The bytes of dynamic shared memory of a block.
    trailing : tuple of TensorMap or bytes
        The arguments after those that all kernels have.
    rung : Rung or None
        The rung; None for a kernel that is not on the ladder.
    """

    kernel: Kernel
    tile: int | None
    geometry: Geometry
    shared: int = 0
    trailing: tuple[TensorMap | bytes, ...] = ()
    rung: Rung | None = None

    def args(self, gemm: Gemm, a: Any, b: Any, c: Any) -> tuple[Any, ...]:
        """Return the launch's arguments, with the matrices in any place."""
        return in_order(gemm, a, b, c, self.trailing)

    def on(self, device: Device, gemm: Gemm) -> Prepared:
        """Return the launch for a device; its multiprocessors decide a persistent kernel's grid."""
        multiprocessors = getattr(device, "multiprocessors", None)  # the emulator has no number
        if self.rung is None or multiprocessors is None:
            return self
        return self._replace(
            geometry=self.rung.geometry(gemm.m, gemm.n, self.tile, gemm.dtype, multiprocessors)
        )


def prepare(target: str | Rung | Kernel, gemm: Gemm, tile: int | None) -> Prepared:
    """Return the kernel for a product, and how it is launched.

    Raises
    ------
    FileNotFoundError, TypeError, ValueError
        As in :func:`run`.
    """
    target = kernel_of(target)
    if isinstance(target, Rung):
        edge = target.tile_for(gemm.m, gemm.n, gemm.k, gemm.dtype, tile)
        sizes = Sizes(gemm.m, gemm.n, gemm.k, gemm.lda, gemm.ldb, gemm.ldc)
        return Prepared(
            target.kernel(gemm.dtype, edge),
            edge,
            target.geometry(gemm.m, gemm.n, edge, gemm.dtype),
            target.shared(edge, gemm.dtype),
            target.trailing(sizes, edge, gemm.dtype),
            target,
        )
    of_type = type_macros(gemm.dtype)
    for macro, meant in of_type.items():
        if target.defines.get(macro, meant) != meant:
            raise ValueError(
                f"{target.name} is defined for {macro} = {target.defines[macro]}, and the matrices "
                f"are {gemm.dtype.name}: that is {meant}"
            )
    own = target.defines.get("TILE")
    if own is not None and tile is not None and own != tile:
        raise ValueError(
            f"{target.name} is defined with TILE = {own}, and tile {tile} is asked for"
        )
    edge = check_tile(tile if own is None and tile is not None else own or DEFAULT_TILE)
    kernel = target.with_macros({**of_type, "TILE": edge})
    return Prepared(kernel, edge, columns_along_x(gemm.m, gemm.n, edge))


def kernel_of(target: str | Rung | Kernel) -> Rung | Kernel:
    """Return ``target`` itself, or what :func:`named` finds by that name.

    Raises
    ------
    FileNotFoundError, ValueError
        As in :func:`named`.
    TypeError
        If it is neither a name nor a kernel.
    """
    if isinstance(target, str):
        return named(target)
    if not isinstance(target, Rung | Kernel):
        raise TypeError(f"{target!r} is no kernel: it must be a name, a Rung or a Kernel")
    return target


def named(target: str, **source: Any) -> Rung | Kernel:
    """Return the kernel of ``"FILE.cu:NAME"`` or ``"FILE.ptx:NAME"``, or the rung with that name.

    Parameters
    ----------
    target : str
    **source
        The arguments ``include``, ``trusted`` and ``limits`` of :class:`tilewise.Kernel`. For PTX
        only ``limits`` may be set.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    IsADirectoryError
        If it is a folder.
    OSError
        If it is no regular file.
    ValueError
        If there is no such rung, no kernel is named, or the name of the file has another suffix.
    """
    found = split_target(target)
    if found is not None:
        path, name = found
        if not name.strip():
            raise ValueError(f"{target!r} names no kernel; write {path}:NAME")
        check_is_file(path)
        if path.suffix != PTX_SUFFIX:
            return Kernel(path, name, **source)
        limits = source.pop("limits", None)
        if meant := [name for name, value in source.items() if value]:
            raise ValueError(f"{meant[0]} is for CUDA C++; {path} is PTX, which includes nothing")
        return Kernel.from_ptx(path, name, limits=limits)
    if target.endswith((*SUFFIXES, PTX_SUFFIX)):
        raise ValueError(
            f"{target!r} is a file; say which kernel in it: {target}:NAME (`tilewise kernels "
            f"{target}` lists them)"
        )
    try:
        return rung(target)
    except ValueError as error:
        refused = f"{error}; or a kernel of your own, as FILE.cu:NAME or FILE.ptx:NAME"
    # NAME may have colons, and so may a path on Windows.
    for text in (target, target.rpartition(":")[0], target.partition(":")[0]):
        if text and _exists(path := Path(text)):
            check_is_file(path)
            raise ValueError(
                f"{path} is a file whose name ends in none of {', '.join(SUFFIXES)} and "
                f"{PTX_SUFFIX}; rename it to {path.with_suffix(SUFFIXES[0])} if it is CUDA C++"
            )
    raise ValueError(refused)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # it is too long for a name, or has a NUL character
        return False
