"""Arrays on a command line: ``zeros:64x64``, ``random:n:float32:seed=3``, ``x.npy``, ``x.npz:key``.

Errors are raised before an array is made: a plan has the shape and the dtype, and makes it later.
"""

from __future__ import annotations

import importlib
import math
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.devices import elements
from tilewise.ladder.matrix_files import check_npy
from tilewise.shown import element
from tilewise.specs.expressions import Number, evaluate, extents

Array = npt.NDArray[Any]

DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
    "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
KINDS = {
    "zeros": "zeros:SHAPE[:DTYPE]", "ones": "ones:SHAPE[:DTYPE]",
    "full": "full:SHAPE:VALUE[:DTYPE]", "arange": "arange:SHAPE[:DTYPE]",
    "empty": "empty:SHAPE[:DTYPE]",
    "random": "random:SHAPE[:DTYPE][:seed=S][:low=L][:high=H]",
}  # fmt: skip
"""The arrays that are made, and how they are written."""
FORMS = "zeros:SHAPE, ones:, full:SHAPE:VALUE, random:, arange:, empty:, FILE.npy or FILE.npz:KEY"
LOW, HIGH = 0, 100
"""The default range of random integers, from LOW up to HIGH - 1."""
_FILE = re.compile(r"(?P<path>.+\.npy)(?::(?P<dtype>\w+))?|"
                   r"(?P<archive>.+\.npz)(?::(?P<key>[^:]+))?(?::(?P<of>\w+))?", re.I)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """An array that has not been made yet.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    make : callable
        A function without arguments that returns the ndarray, row-contiguous and writeable.
    is_empty : bool
        Whether it is uninitialised, so that its bytes have no meaning.
    file : Path or None
        The file that it is read from.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    make: Callable[[], Array]
    is_empty: bool = False
    file: Path | None = None

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def is_array(text: str) -> bool:
    """Return whether a text is written as an array, right or wrong."""
    return text.partition(":")[0] in KINDS or _FILE.fullmatch(text) is not None


def plan(
    text: str,
    declared: str,
    names: Mapping[str, Number],
    what: str,
    *,
    seed: tuple[int, ...] = (0,),
    is_cast: bool = False,
) -> Plan:
    """Return the plan of the array that a text describes.

    Parameters
    ----------
    text : str
        A text of one of the forms :data:`FORMS`.
    declared : str
        The parameter's type, such as ``"float*"``; without a DTYPE the array has its elements.
    names : mapping
        The values of the names in its shape.
    what : str
        The name of the argument for messages.
    seed : tuple of int
        The seed of random numbers, if the text has none.
    is_cast : bool
        Whether the numbers of a file are converted to the parameter's type.

    Raises
    ------
    ValueError, TypeError
        If the text has none of the forms, or a dtype that the parameter can't take.
    OSError
        If its file does not exist or can't be read.
    """
    if found := _FILE.fullmatch(text):
        return _of_file(found, declared, what, is_cast)
    kind, *parts = text.split(":")
    if kind not in KINDS:
        near = get_close_matches(kind, KINDS, 1)
        takes = f"did you mean {near[0]}? It takes" if near and parts else "it takes"
        raise ValueError(f"{what} is {text!r}, which is no array; {takes} {FORMS}")
    if not parts or not parts[0]:
        raise ValueError(f"{what} is {text!r}, which has no shape; write {KINDS[kind]}")
    options = dict(part.split("=", 1) for part in parts[1:] if "=" in part)
    plain = [part for part in parts[1:] if "=" not in part]
    known = ("seed", "low", "high") if kind == "random" else ()
    if kind == "full" and not plain:
        raise ValueError(f"{what} is {text!r}, which has no value; write {KINDS[kind]}")
    most = 2 if kind == "full" else 1
    if len(plain) > most or set(options) - set(known):
        extra = plain[most] if len(plain) > most else next(x for x in options if x not in known)
        raise ValueError(f"{what} is {text!r}: {extra!r} is not understood; write {KINDS[kind]}")
    shape = extents(parts[0], names, f"{what}: its shape")
    if any(size < 0 for size in shape):
        raise ValueError(f"{what} has the shape {shape}; a size must be at least 0")
    dtype, lanes = _of_parameter(declared, what)
    if len(plain) == most:
        dtype, lanes = plain[-1], 1
    elif not dtype:
        raise ValueError(
            f"{what} is {text!r}, and {declared or 'its type'} does not say of what; add a dtype, "
            f"as {text}:float32"
        )
    given = dtype_of(dtype, what)
    check_dtype(given, declared, what, text)
    shape = shape if lanes == 1 else (*shape, lanes)
    if math.prod(shape) * given.itemsize >= 1 << 62:
        raise MemoryError(f"{what}, {text}, is more than a machine can address")
    value = evaluate(plain[0], names, f"{what}: its value") if kind == "full" else 0
    low, high = (
        evaluate(options[name], names, f"{what}: {name}") if name in options else None
        for name in ("low", "high")
    )
    own = evaluate(options["seed"], names, f"{what}: seed") if "seed" in options else 0
    if not isinstance(own, int) or own < 0:
        raise ValueError(f"{what}: seed is {options['seed']}; it must be an integer from 0")
    filled = _held(value, given, what)
    drawn_from = (own,) if "seed" in options else seed
    makers: dict[str, Callable[[], Array]] = {
        "zeros": lambda: np.zeros(shape, given),
        "empty": lambda: np.zeros(shape, given),
        "ones": lambda: np.ones(shape, given),
        "full": lambda: np.full(shape, filled, given),
        "arange": lambda: np.arange(math.prod(shape)).astype(given).reshape(shape),
        "random": lambda: _random(shape, given, drawn_from, low, high),
    }
    if kind == "arange":
        _held(max(math.prod(shape) - 1, 0), given, what)
    if kind == "random":
        _check_range(low, high, given, what)
    return Plan(shape, given, makers[kind], kind == "empty")


def dtype_of(name: str, what: str) -> np.dtype[Any]:
    """Return the NumPy dtype with a name, also bfloat16 if ml_dtypes is installed.

    Raises
    ------
    ValueError
        If there is no such dtype, or if it is bfloat16 and ml_dtypes is not installed.
    """
    if name not in DTYPES:
        alike = {"float": "float32", "double": "float64", "half": "float16", "int": "int32"}
        near = [alike[name]] if name in alike else get_close_matches(name, DTYPES, 1)
        there = f"did you mean {near[0]}? There are" if near else "there are"
        raise ValueError(f"{what}: {name!r} is no dtype; {there} {', '.join(DTYPES)}")
    if name == "bfloat16":
        try:
            found: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
        except ImportError:
            raise ValueError(
                f"{what}: NumPy has no bfloat16 without ml_dtypes (pip install ml_dtypes); uint16 "
                "takes its bits"
            ) from None
    else:
        found = np.dtype(name)
    return found


def check_dtype(dtype: np.dtype[Any], declared: str, what: str, text: str) -> None:
    """Raise TypeError where a parameter can't take an array of this dtype."""
    wanted = elements.refused(declared, dtype)
    if wanted:
        told = f"{what}: {text} is {dtype}, and {declared} takes {wanted}"
        if _FILE.fullmatch(text):
            told += f"; {text}:{wanted} converts it, and --cast all files"
        raise TypeError(told)


def _of_parameter(declared: str, what: str) -> tuple[str, int]:
    """Return the dtype that a pointer asks for, and its numbers an element."""
    if declared.endswith("**"):
        raise ValueError(
            f"{what}: an array of pointers can't be written here; it takes null, and from Python "
            "Kernel.launch takes an array of uint64 with the addresses"
        )
    return elements.meant(declared)


def _held(value: Number, dtype: np.dtype[Any], what: str) -> Any:
    """Return a number as the dtype stores it."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not math.isfinite(value) or value != int(value):
            raise ValueError(f"{what}: {float(value)} is no whole number, and its dtype is {dtype}")
        if not limits.min <= value <= limits.max:
            raise ValueError(
                f"{what}: {value} does not fit {dtype}; it takes {limits.min} to {limits.max}"
            )
        return int(value)
    check_fits(value, dtype, f"{what}: ")
    return float(value)


def check_fits(value: Number, dtype: np.dtype[Any], whose: str = "") -> None:
    """Raise ValueError where a finite number is infinite in a dtype of real or complex numbers."""
    with np.errstate(over="ignore"):
        if math.isfinite(value) and not np.isfinite(dtype.type(float(value))):
            raise ValueError(f"{whose}{float(value):g} is beyond the largest {dtype}")


def _check_range(low: Number | None, high: Number | None, dtype: np.dtype[Any], what: str) -> None:
    if low is None and high is None:
        return
    if dtype.kind == "c" or dtype.kind == "b":
        raise ValueError(f"{what}: low and high are for real numbers, and its dtype is {dtype}")
    first, last = (LOW if low is None else low), (HIGH if high is None else high)
    if not (first < last and math.isfinite(first) and math.isfinite(last)):
        raise ValueError(
            f"{what}: low is {float(first):g} and high is {float(last):g}; low must be below high, "
            "and both finite"
        )
    _held(first, dtype, what)
    _held(last - 1 if dtype.kind in "iu" else last, dtype, what)


def _random(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    seed: tuple[int, ...],
    low: Number | None,
    high: Number | None,
) -> Array:
    """Return normal floats, integers from LOW to HIGH - 1, or booleans; or evenly
    distributed ones.
    """
    draw = np.random.default_rng(seed)
    if dtype.kind == "b":
        return draw.random(shape) < 0.5
    if dtype.kind in "iu":
        first, last = (LOW if low is None else int(low)), (HIGH if high is None else int(high))
        return draw.integers(first, last, shape, dtype=dtype.type)
    if dtype.kind == "c":
        real = draw.standard_normal((*shape, 2))
        return np.ascontiguousarray(real).view(np.complex128)[..., 0].astype(dtype)
    if low is None and high is None:
        return draw.standard_normal(shape).astype(dtype)
    least, most = float(LOW if low is None else low), float(HIGH if high is None else high)
    return draw.uniform(least, most, shape).astype(dtype)


def _of_file(found: re.Match[str], declared: str, what: str, is_cast: bool) -> Plan:
    """Return the array of a file, with its numbers converted to the parameter's type if asked."""
    path = Path(found["path"] or found["archive"])
    array = load(path, found["key"], what)
    text = f"{path}:{found['key']}" if found["key"] else str(path)
    if array.ndim > 1 and not array.flags.c_contiguous:
        raise ValueError(
            f"{what}: {text} is stored column by column, and a kernel gets rows; save "
            "numpy.ascontiguousarray(x), or x.T for the bytes as they lie"
        )
    wanted = found["dtype"] or found["of"] or ""
    if not wanted and is_cast:
        wanted = _of_parameter(declared, what)[0]
    if wanted:
        array = _converted(array, dtype_of(wanted, what), what, text)
    check_dtype(array.dtype, declared, what, text)
    return Plan(array.shape, array.dtype, array.copy, file=path)


def load(path: Path, key: str | None, what: str) -> Array:
    """Return the array of a ``.npy`` file, or of one name in a ``.npz``, in native bytes.

    Raises
    ------
    OSError
        If there is no such file, or it can't be read.
    MemoryError
        If its header says that it is larger than this machine's memory.
    ValueError
        If it holds no numbers, or none of that name.
    """
    if not path.exists():
        raise FileNotFoundError(f"{what}: there is no file {path}")
    if path.is_dir():
        raise IsADirectoryError(f"{what}: {path} is a folder")
    if path.suffix.lower() != ".npz":
        check_npy(path, what)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            if key is not None or path.suffix.lower() == ".npz":
                raise ValueError(f"{what}: {path} is one array; name the file .npy")
        else:
            with loaded:
                there = ", ".join(loaded.files) or "none"
                if key is None or key not in loaded.files:
                    asked = (
                        f"{key!r} is not in {path}" if key else f"{path} is an archive: say which"
                    )
                    raise ValueError(
                        f"{what}: {asked}; it has {there}, as {path}:{there.split(',')[0]}"
                    )
                loaded = loaded[key]
    except MemoryError as error:
        raise MemoryError(f"{what}: {path}: {error}") from None
    except (EOFError, SyntaxError, zipfile.BadZipFile, ValueError) as error:
        if str(error).startswith(what):
            raise
        # NumPy takes whatever it does not know for a pickle and says so, which misleads.
        reason = "" if "pickle" in str(error).lower() else f": {error}"
        raise ValueError(f"{what}: {path} holds no array of numbers{reason}") from None
    if loaded.dtype.kind not in "biufcV" or loaded.dtype.hasobject:
        raise ValueError(f"{what}: {path} is of dtype {loaded.dtype}, which is no number")
    return np.asarray(loaded.astype(loaded.dtype.newbyteorder("="), order="K", copy=False))


def _converted(array: Array, dtype: np.dtype[Any], what: str, text: str) -> Array:
    """Return the same numbers of another dtype; integers and infinities must not become others."""
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(f"{what}: {text} is {array.dtype}, which {dtype} does not hold")
    with np.errstate(all="ignore"):
        out = array.astype(dtype)
        if dtype.kind in "biu":
            wrong = out != array if array.dtype.kind not in "iu" else _differ(out, array)
        else:
            wrong = np.isinf(out.astype(np.complex128)) & np.isfinite(array.astype(np.complex128))
    if np.any(wrong):
        place = np.unravel_index(int(np.argmax(wrong)), array.shape)
        at = f" at {element('', place)}" if place else ""
        raise ValueError(f"{what}: {text} has {array[place]}{at}, which {dtype} does not hold")
    return out


def _differ(out: Array, array: Array) -> Array:
    """Return whether integers of two dtypes differ: NumPy compares int64 and uint64 as floats."""
    differ = out.astype(array.dtype) != array
    return np.asarray(differ | ((out < 0) != (array < 0)))
