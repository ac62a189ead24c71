"""``kernel.variables``: the ``__constant__`` and ``__device__`` variables of a kernel's module."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, MutableMapping
from difflib import get_close_matches
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tilewise.compiler import Compiled, Variable
from tilewise.compiler.type_names import vector_of
from tilewise.devices import Device
from tilewise.devices.elements import refused
from tilewise.devices.emulated import emulator
from tilewise.errors import CompileError, VariableError
from tilewise.launch import Module
from tilewise.masked import is_masked
from tilewise.shown import plural

_DTYPES = {
    "bool": "bool", "char": "int8", "signed char": "int8", "unsigned char": "uint8",
    "short": "int16", "unsigned short": "uint16", "int": "int32", "unsigned int": "uint32",
    "long": "int64", "unsigned long": "uint64", "long long": "int64",
    "unsigned long long": "uint64", "float": "float32", "double": "float64",
    "__half": "float16", "__nv_bfloat16": "uint16",
}  # fmt: skip
_BYTES = ("char", "signed char", "unsigned char")

Compile = Callable[[str | None], Compiled]


class Variables(MutableMapping[str, Any]):
    """The ``__constant__`` and ``__device__`` variables of a kernel's module, by their names.

    A name is the source's, such as ``"filters::weights"`` or ``"table<4>"``, or its last part if no
    other variable has the same. Setting a variable sets it for every device, as
    ``cudaMemcpyToSymbol`` does. A value that a launch writes stays in the module of that device,
    and the next launch of the same :class:`tilewise.Kernel` there finds it. Reading a variable
    returns a copy of its value on the device of the last launch; before the first launch, the
    source's value or the one that was set.

    A variable takes a number or an array of its shape and dtype: a vector type is one more axis, a
    pointer takes an array on the device or an address, and a bfloat16 is its bits as ``uint16``. A
    structure takes an array of as many bytes, and is read as ``uint8``.

    Raises
    ------
    VariableError
        If there is no variable of a name, or several.
    TypeError, ValueError
        If a value does not fit: of another dtype, another shape, or too large a number. A launch
        raises TypeError if a pointer was set to an array of another device.

    Examples
    --------
    >>> import numpy as np, tilewise
    >>> source = '''__constant__ float weights[3]; __device__ int launches;
    ... extern "C" __global__ void k(float* x) {
    ...     x[threadIdx.x] *= weights[threadIdx.x];
    ...     if (threadIdx.x == 0) ++launches;
    ... }'''
    >>> kernel = tilewise.Kernel(source, "k")
    >>> kernel.variables["weights"] = [1, 10, 100]
    >>> x = np.ones(3, np.float32)
    >>> for _ in range(2):
    ...     report = kernel.launch(1, 3, (x,), device="emulator")
    >>> x
    array([1.e+00, 1.e+02, 1.e+04], dtype=float32)
    >>> kernel.variables["launches"]
    array(2, dtype=int32)
    """

    def __init__(self, compile: Compile, given: Variables | None = None) -> None:
        self._compile = compile
        self._given: dict[str, bytes] = {} if given is None else dict(given._given)
        # For a source that compiles only with more macros: values that were set before those are
        # known.
        self._waiting: dict[str, Any] = {} if given is None else dict(given._waiting)
        self._held: list[Any] = []  # the arrays that pointers point to
        self._pointing: dict[
            str, Any
        ] = {}  # the arrays whose addresses pointers have, by the variables' names
        if given is not None:
            self._held += given._held
            self._pointing |= given._pointing
        self._start()

    def _start(self) -> None:
        self._modules: WeakKeyDictionary[Device, Module] = WeakKeyDictionary()
        self._changed: set[str] = set()
        self._last: Module | None = None
        self._arch: str | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle: the values that were set, without any device's module."""
        return {
            "_compile": self._compile, "_given": self._given, "_waiting": self._waiting,
            "_held": [], "_pointing": {},
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    # Names

    @property
    def _all(self) -> dict[str, Variable]:
        return {each.name: each for each in self._compile(self._arch).variables}

    def _find(self, name: str, compiled: Compiled | None = None) -> Variable:
        if not isinstance(name, str):
            raise TypeError(f"a variable's name is {name!r}; it takes a string")
        known = self._all if compiled is None else {each.name: each for each in compiled.variables}
        asked = re.sub(r"\s*(::|[<>,])\s*", r"\1", name.strip()).replace(",", ", ").lstrip(":")
        if asked in known:
            return known[asked]
        found = [each for each in known if each.endswith(f"::{asked}")]
        if len(found) == 1:
            return known[found[0]]
        if found:
            raise VariableError(f"{name!r} may be {' or '.join(found)}; give the whole name")
        meant = get_close_matches(asked, known, 3)
        there = f"; did you mean {' or '.join(meant)}?" if meant else ""
        if not meant:
            listed = ", ".join(known) or "none"
            there = f"; the kernel's module has {listed}"
        raise VariableError(f"there is no variable called {name!r}{there}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, name: object) -> bool:
        try:
            self._find(name)  # type: ignore[arg-type]
        except (VariableError, TypeError):
            return False
        return True

    def __repr__(self) -> str:
        return "\n".join(map(_described, self._all.values())) or "no variables"

    # Values

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        found = self._find(name)
        if self._last is not None:
            data = self._last.read(found.symbol)
        elif found.name in self._given:
            data = self._given[found.name]
        else:
            compiled = self._compile(self._arch)
            data = emulator(compiled.arch).module(compiled).read(found.symbol)
        return as_array(found, data)

    def __setitem__(self, name: str, value: Any) -> None:
        try:
            found = self._find(name)
        except CompileError:
            self._waiting[name] = value.copy() if isinstance(value, np.ndarray) else value
            return
        with self._lock:
            data = self._give(found, value)
            for module in self._modules.values():
                module.write(found.symbol, data)

    def _give(self, variable: Variable, value: Any) -> bytes:
        data = self._given[variable.name] = as_bytes(variable, value)
        self._pointing.pop(variable.name, None)
        if hasattr(value, "pointer"):
            self._held.append(value)
            self._pointing[variable.name] = value
        return data

    def __delitem__(self, name: str) -> None:
        raise TypeError("a variable of a module can't be deleted; a new Kernel has its own")

    # For launches

    def module(self, device: Device, compiled: Compiled) -> Module | None:
        """Return the kernel's module on a device, with the set values; None without variables."""
        with self._lock:
            self._settle(compiled)
            if not compiled.variables:
                return None
            module = self._modules.get(device)
            if module is None:
                module = self._modules[device] = self._filled(device, compiled)
            self._check_pointers(module)
            self._last, self._arch = module, compiled.arch
            return module

    def for_a_look(self, device: Device, compiled: Compiled) -> Module | None:
        """Return a new module for a launch that changes nothing."""
        self._settle(compiled)
        return self._filled(device, compiled) if compiled.variables else None

    def _settle(self, compiled: Compiled) -> None:
        """Apply the values that were set before the source was compiled; raise if one is wrong."""
        for name, value in self._waiting.items():
            self._give(self._find(name, compiled), value)
        self._waiting.clear()

    def _filled(self, device: Device, compiled: Compiled) -> Module:
        module = device.module(compiled)
        self._check_pointers(module)
        for each in compiled.variables:
            data = self._given.get(each.name)
            if data is not None:
                if len(data) != each.size:
                    raise ValueError(
                        f"{each.name} has {plural(each.size, 'byte')} on {compiled.arch}, and was "
                        f"set to {len(data)}"
                    )
                module.write(each.symbol, data)
        return module

    def _check_pointers(self, module: Module) -> None:
        """Raise TypeError for an array that a launch with this module could not reach."""
        for name, value in self._pointing.items():
            try:
                module.accept(value)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None

    def launched(self, compiled: Compiled) -> None:
        """Record a launch in this process, which may have changed the module's variables."""
        self._changed.update(
            each.symbol
            for each in compiled.variables
            if each.space == "device" and each.declared and not each.declared.endswith("*")
        )

    def carried(self, compiled: Compiled) -> frozenset[str]:
        """Return the symbols of the variables that a module in another process is given.

        They are those that were set or changed. Variables that hold addresses are left out unless
        they were set, because addresses have no meaning there.
        """
        given = {each.symbol for each in compiled.variables if each.name in self._given}
        return frozenset(given | self._changed)

    def changed(self, symbols: set[str]) -> None:
        """Record which variables a launch in another process changed."""
        self._changed |= symbols


def _described(variable: Variable) -> str:
    extents = "".join(f"[{extent}]" for extent in variable.shape)
    kind = f"{variable.declared}{extents}" if variable.declared else plural(variable.size, "byte")
    return f"{variable.name} ({variable.space}, {kind})"


def _form(variable: Variable) -> tuple[np.dtype[Any] | None, tuple[int, ...]]:
    """Return the dtype and the shape of a variable's array; the dtype is None if unknown."""
    kind, shape = variable.declared, variable.shape
    if kind.endswith("*"):
        return np.dtype(np.uint64), shape
    scalar, lanes = vector_of(kind)
    if scalar not in _DTYPES:
        return None, (variable.size,)
    return np.dtype(_DTYPES[scalar]), shape if lanes == 1 else (*shape, lanes)


def as_array(variable: Variable, data: bytes) -> npt.NDArray[Any]:
    """Return the value of a variable as a new array."""
    dtype, shape = _form(variable)
    return np.frombuffer(data, dtype or np.uint8).reshape(shape).copy()


def as_bytes(variable: Variable, value: Any) -> bytes:
    """Return the bytes of a value for a variable.

    Raises
    ------
    TypeError, ValueError
        The errors of :class:`Variables`.
    """
    name, (dtype, shape) = variable.name, _form(variable)
    if is_masked(value):
        raise TypeError(f"{name} takes an array without a mask; pass x.filled(0), or x.data")
    if variable.declared.endswith("*") and hasattr(value, "pointer"):
        value = np.uint64(value.pointer)
    has_dtype = isinstance(value, np.ndarray | np.generic)
    if dtype is None:
        if not has_dtype:
            raise TypeError(
                f"{name} is a structure or of a type that is not known here; it takes an array of "
                f"{plural(variable.size, 'byte')}"
            )
        return _whole(variable, np.asarray(value))
    if not has_dtype:
        return _whole(variable, _shaped(variable, _converted(variable, value, dtype), shape))
    array = np.asarray(value)
    if variable.declared in _BYTES:
        return _whole(variable, array)
    if variable.declared.endswith("*"):
        wanted = "" if array.dtype.kind in "iu" and array.itemsize == 8 else "uint64"
    else:
        wanted = refused(f"{variable.declared}*", array.dtype)
    if wanted or array.itemsize % dtype.itemsize:
        raise TypeError(
            f"{name} takes {wanted or dtype}, and the array is {array.dtype}; convert it, or where "
            f"its bytes are meant, pass its .view"
        )
    if array.itemsize != dtype.itemsize:  # complex numbers and words, for vector types
        return _whole(variable, array)
    return _whole(variable, _shaped(variable, array, shape))


def _converted(variable: Variable, value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Convert Python's own numbers, and lists of them."""
    try:
        plain = np.asarray(value)
        if plain.dtype.kind in "biuf" and np.can_cast(plain.dtype, dtype, "same_kind"):
            return np.asarray(value, dtype)
        if plain.dtype.kind in "biu" and dtype.kind in "iuf":
            return np.asarray(value, dtype)  # raises if a number does not fit
    except (OverflowError, ValueError):
        pass
    raise ValueError(f"{variable.name} takes {dtype}, and {value!r} is none")


def _shaped(
    variable: Variable, array: npt.NDArray[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    if array.shape == shape or (array.ndim == 1 and array.size == np.prod(shape, dtype=int)):
        return array
    raise ValueError(f"{variable.name} has the shape {shape}, and the array {array.shape}")


def _whole(variable: Variable, array: npt.NDArray[Any]) -> bytes:
    if array.nbytes != variable.size:
        raise ValueError(
            f"{variable.name} has {plural(variable.size, 'byte')}, and the array {array.nbytes}"
        )
    return array.tobytes()
