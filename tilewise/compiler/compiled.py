"""A compiled kernel: its code, its parameters, and what ptxas says of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.counted import Resources


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, as the PTX and the source declare it.

    Attributes
    ----------
    name : str
        The name in the PTX, such as ``"sgemm_param_0"``.
    type : str
        The PTX type without the dot: ``"u32"``, ``"f32"``, ``"u64"``; ``"b8"`` for a structure.
    size, align : int
        The size and the alignment in bytes.
    declared : str
        The type in the source, such as ``"float*"`` (:func:`tilewise.compiler.signatures.told`);
        empty if it is not known. For given PTX it is ``"*"`` for a pointer.
    label : str
        The name in findings, if neither the source nor the PTX has one; else empty.
    """

    name: str
    type: str
    size: int
    align: int
    declared: str = ""
    label: str = ""


@dataclass(frozen=True)
class Variable:
    """A ``__constant__`` or ``__device__`` variable of a kernel's module.

    Attributes
    ----------
    name : str
        The name in the source, with its namespaces: ``"filters::weights"``, ``"table<4>"``.
    symbol : str
        The name in PTX and machine code.
    space : str
        ``"constant"`` or ``"device"``.
    size : int
        The size in bytes.
    declared : str
        The type of an element in the source, such as ``"float"``; empty for a structure, and if it
        is not known.
    shape : tuple of int
        The extents of an array; empty for a single value, and if they are not known.
    is_known : bool
        Whether the source's declaration is known.
    """

    name: str
    symbol: str
    space: str
    size: int
    declared: str = ""
    shape: tuple[int, ...] = ()
    is_known: bool = False


@dataclass(frozen=True)
class Shape:
    """The shape of a shared array, as far as it is certain.

    Attributes
    ----------
    element : int
        The size of an element in bytes.
    extents : tuple of int
        The extent of each dimension; empty for a single value, and if they are not certain.
    values : int
        The number of values in an element: 1, or those of a vector type as ``float4``; 0 if the
        type is not one of CUDA C++'s own.
    """

    element: int
    extents: tuple[int, ...]
    values: int


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel.

    Attributes
    ----------
    name : str
        The kernel's name as it was asked for.
    symbol : str
        Its name in PTX and machine code: the mangled one, or the same for ``extern "C"``.
    arch : str
        The architecture, as in ``"sm_90a"``.
    source : str
        The CUDA C++. For given PTX, the text that its lines are in, which is the PTX itself if it
        names no source; empty if that can't be read.
    file : str
        The source's name in messages and in the PTX.
    ptx : str
        The whole module.
    cubin : bytes
        The machine code of the whole module, an ELF file; empty for PTX that nothing here
        assembles, and if no machine code was asked for.
    resources : Resources
        The resources that ptxas reports.
    parameters : tuple of Parameter
        The parameters in order.
    variables : tuple of Variable
        The variables of the module, including those of its other kernels.
    is_ptx : bool
        Whether it was given as PTX.
    ptx_file : int
        The number of the ``.file`` that represents the PTX itself; functions without source lines
        have lines of the PTX. 0 if there is none.
    source_doubt : str
        For PTX, why the source that is shown may not be the one it was compiled from. Empty if
        nothing suggests that.
    is_part : bool
        Whether only the part of the source that the kernel needs was compiled.
    remarks : tuple of str
        Notes for the user: ``source_doubt``, headers that were not found and were left out, and
        each ``__has_include`` whose header was not found.
    macros : tuple of str
        The macros that were defined for the compiler, each as ``"TILE=16"``; empty if the kernel
        was given as PTX.
    in_python : bool
        Whether the kernel is written in Python, with Numba or Triton.
    shapes : tuple of (str, Shape)
        The symbols and shapes of the shared arrays whose shapes the compiler gives; those of other
        arrays are read from the source.
    """

    name: str
    symbol: str
    arch: str
    source: str
    file: str
    ptx: str
    cubin: bytes
    resources: Resources
    parameters: tuple[Parameter, ...]
    variables: tuple[Variable, ...] = ()
    is_ptx: bool = False
    ptx_file: int = 0
    source_doubt: str = ""
    is_part: bool = False
    remarks: tuple[str, ...] = ()
    macros: tuple[str, ...] = ()
    in_python: bool = False
    shapes: tuple[tuple[str, Shape], ...] = ()

    def __repr__(self) -> str:
        return f"Compiled({self.name!r}, {self.arch!r}, {self.file!r}, {self.resources!r})"


class _Late:
    """A field that may be given as it is in the cache, and is converted when it is read.

    Parameters
    ----------
    name : str
    kind : type
        The type of what is converted.
    convert : callable
    """

    def __init__(self, name: str, kind: type, convert: Callable[[Any], Any]) -> None:
        self._name, self._kind, self._convert = f"_{name}", kind, convert

    def __get__(self, instance: object, owner: type) -> Any:
        value = instance.__dict__[self._name]
        if isinstance(value, self._kind):
            instance.__dict__[self._name] = value = self._convert(value)
        return value

    def __set__(self, instance: object, value: Any) -> None:
        instance.__dict__[self._name] = value


def _inflated(text: bytes) -> str:
    return zlib.decompress(text).decode()


def _variables(rows: Iterable[Sequence[Any]]) -> tuple[Variable, ...]:
    return tuple(
        Variable(name, symbol, space, size, declared, tuple(shape), is_known)
        for name, symbol, space, size, declared, shape, is_known in rows
    )


# A product's launch on a GPU needs neither, and a kernel may have 40 variables, because constants
# are variables too. They are set here, because in the class they would look like defaults.
setattr(Compiled, "ptx", _Late("ptx", bytes, _inflated))  # noqa: B010
setattr(Compiled, "variables", _Late("variables", list, _variables))  # noqa: B010
