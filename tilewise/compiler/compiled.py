"""A compiled kernel: its code, its parameters, and what ptxas says of it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from tilewise.counted import Resources


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel, as the PTX declares it, and the source.

    Attributes
    ----------
    name : str
        The PTX's name of it, as ``"sgemm_param_0"``.
    type : str
        PTX type without the dot: ``"u32"``, ``"f32"``, ``"u64"``; ``"b8"`` for a structure.
    size, align : int
        Bytes.
    declared : str
        The source's type of it, as ``"float*"``
        (:func:`tilewise.compiler.signatures.told`); empty where it is not known. Of PTX that
        was given, ``"*"`` of a pointer.
    label : str
        What findings call it, where neither the source nor the PTX says; else empty.
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
        As the source has it, with its namespaces: ``"filters::weights"``, ``"table<4>"``.
    symbol : str
        Its name in PTX and machine code.
    space : str
        ``"constant"`` or ``"device"``.
    size : int
        Bytes.
    declared : str
        The source's type of an element, as ``"float"``; empty of a structure, and where it is not
        known.
    shape : tuple of int
        The extents of an array; empty of a single one, and where they are not known.
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
class Compiled:
    """One kernel, compiled.

    Attributes
    ----------
    name : str
        The kernel's name as it was asked for.
    symbol : str
        Its name in PTX and machine code: the mangled one, or the same for ``extern "C"``.
    arch : str
        As ``"sm_90a"``.
    source : str
        CUDA C++. Of PTX that was given: the text that its lines are in, which is the PTX itself
        where it says of no source; empty where that can't be read.
    file : str
        The source's name in messages and in the PTX.
    ptx : str
        The whole module.
    cubin : bytes
        The whole module's machine code, an ELF file; empty of PTX that nothing there assembles, and
        where none was asked for.
    resources : Resources
        What ptxas reports.
    parameters : tuple of Parameter
        In order.
    variables : tuple of Variable
        Of the module, those of its other kernels too.
    is_ptx : bool
        Whether it was given as PTX.
    ptx_file : int
        The number of the ``.file`` that stands for the PTX itself: functions whose PTX says of no
        source line have its own lines. 0 where there is none.
    source_doubt : str
        For PTX: why the source that is shown may not be the one it was compiled from. Empty where
        there is no sign of that.
    is_part : bool
        Whether the part of the source was compiled that the kernel needs, and not all of it.
    remarks : tuple of str
        Notes for the user: ``source_doubt``, headers that were not found and were left out, and
        each ``__has_include`` whose header was not found.
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

    def __repr__(self) -> str:
        return f"Compiled({self.name!r}, {self.arch!r}, {self.file!r}, {self.resources!r})"


class _Inflated:
    """A text of an object, which may be given compressed and is then inflated when it is read."""

    def __init__(self, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, instance: object, owner: type) -> str:
        value: str | bytes = instance.__dict__[self._name]
        if isinstance(value, bytes):
            instance.__dict__[self._name] = value = zlib.decompress(value).decode()
        return value

    def __set__(self, instance: object, value: str | bytes) -> None:
        instance.__dict__[self._name] = value


# A launch on a GPU needs no PTX. Set here, for in the class it would look like a default.
setattr(Compiled, "ptx", _Inflated("ptx"))  # noqa: B010
