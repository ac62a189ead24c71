"""A kernel's arguments on a command line: numbers and arrays, by position or by name."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from tilewise import host_memory
from tilewise.compiler import Compiled, Parameter
from tilewise.compiler.names import parameter_names, signature
from tilewise.devices import arguments as rules
from tilewise.devices import elements, virtual
from tilewise.shown import plural
from tilewise.specs.arrays import FORMS, Plan, dtype_of, is_array, plan
from tilewise.specs.expressions import Number, UnknownNameError, evaluate, whole

_NAMED = re.compile(r"([A-Za-z_]\w*|\d+)=(.*)", re.DOTALL)
_BOOLEANS = {"true": True, "false": False}
_COPIES = 3  # copies of an array that a run holds: the original, the emulator's, and the result


@dataclass(frozen=True)
class Argument:
    """An argument of a launch.

    Attributes
    ----------
    name : str
        The parameter's name; if it has none, ``"arg3"`` by its place.
    parameter : Parameter
    text : str
        The text as it was given.
    value : object
        The value for :meth:`tilewise.Kernel.launch`; None for an array.
    plan : Plan or None
        The plan of an array.
    """

    name: str
    parameter: Parameter
    text: str
    value: Any = None
    plan: Plan | None = None

    @property
    def number(self) -> Number | None:
        """The value of its name in expressions; None if it is not a number."""
        return self.value if isinstance(self.value, int | float) else None


@dataclass(frozen=True)
class Arguments:
    """All arguments of a launch, in order; arrays are planned and not made.

    Attributes
    ----------
    each : tuple of Argument
    """

    each: tuple[Argument, ...]

    @property
    def numbers(self) -> dict[str, Number]:
        """The values of names in expressions."""
        return {x.name: x.number for x in self.each if x.number is not None}

    @property
    def arrays(self) -> tuple[Argument, ...]:
        """The arguments that are arrays."""
        return tuple(x for x in self.each if x.plan is not None)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that arrays are read from."""
        return tuple(x.plan.file for x in self.each if x.plan is not None and x.plan.file)


def parse(
    compiled: Compiled, texts: Sequence[str], *, seed: int = 0, is_cast: bool = False
) -> Arguments:
    """Return a kernel's arguments from texts; raise an error before an array is made.

    Parameters
    ----------
    compiled : Compiled
    texts : sequence of str
        The texts, one for each parameter, in order, or ``NAME=TEXT`` in any order; after one with a
        name, all have one. A parameter's place, from 0, can replace its name: ``3=TEXT``; a
        parameter whose name can't be read in the source is called ``arg3``. A number is an
        expression (:mod:`tilewise.specs.expressions`) of the other numbers' names, or ``true`` or
        ``false``. An array has one of the forms :data:`tilewise.specs.arrays.FORMS`, or is
        ``null``. A vector such as ``float4`` is its numbers with commas; any other structure is
        ``struct:FORMAT:VALUE,VALUE,...``, with a format of Python's :mod:`struct`, or
        ``hex:0001ff``, its bytes.
    seed : int
        The seed of random arrays that have none of their own; no two of them are alike.
    is_cast : bool
        Whether the numbers of files are converted to the parameters' types.

    Raises
    ------
    ValueError, TypeError
        If there are too many or too few texts, or one does not suit its parameter.
    OSError
        If a file does not exist or can't be read.
    MemoryError
        If the arrays are more than this machine holds.
    """
    if seed < 0:
        raise ValueError(f"seed is {seed}; it must be at least 0")
    names = names_of(compiled)
    given = _matched(compiled, names, texts)
    found: dict[int, Argument] = {}
    _numbers(compiled, names, given, found)
    numbers = {x.name: x.number for x in found.values() if x.number is not None}
    for index, (name, parameter) in enumerate(zip(names, compiled.parameters, strict=True)):
        if index in found:
            continue
        what, text = said(name, parameter), given[index]
        if parameter.declared.endswith("*") and not is_array(text):
            _refuse_number(text, numbers, what, parameter.declared)
        made = plan(
            text, parameter.declared, numbers, what, seed=(seed, index), is_cast=is_cast
        )  # fmt: skip
        found[index] = Argument(name, parameter, text, plan=made)
    out = Arguments(tuple(found[index] for index in range(len(names))))
    _check_memory(out)
    # The launch's own rules check the arguments, with arrays that take no memory.
    stands = (
        x.value if x.plan is None else virtual.zeros(x.plan.shape, x.plan.dtype) for x in out.each
    )
    rules.bind(compiled.name, compiled.parameters, tuple(stands))
    return out


def names_of(compiled: Compiled) -> list[str]:
    """Return the parameters' names, each once; ``"arg3"``, by its place, for an unknown one."""
    names = parameter_names(compiled) or [""] * len(compiled.parameters)
    found = []
    for index, name in enumerate(names):
        if not name.isidentifier() or names.count(name) > 1:
            name = f"arg{index}"
            while name in names:
                name = f"_{name}"
        found.append(name)
    return found


def place_of(given: str, names: Sequence[str]) -> int | None:
    """Return the place of a parameter given by name or place; None if there is none.

    Examples
    --------
    >>> place_of("x", ["n", "x"]), place_of("1", ["n", "x"]), place_of("2", ["n", "x"])
    (1, 1, None)
    """
    if given in names:
        return names.index(given)
    return int(given) if re.fullmatch(r"[0-9]{1,4}", given) and int(given) < len(names) else None


def said(name: str, parameter: Parameter) -> str:
    """Return a parameter in a message: ``argument x (float*)``."""
    kind = parameter.declared.lstrip("*") or plural(parameter.size, "byte")
    return f"argument {name} ({kind})"


def _matched(compiled: Compiled, names: Sequence[str], texts: Sequence[str]) -> dict[int, str]:
    """Return the text of each parameter."""
    given: dict[int, str] = {}
    is_by_name = False
    for place, text in enumerate(texts):
        by_name = _NAMED.fullmatch(text)
        if by_name is None:
            if is_by_name:
                raise ValueError(f"{text!r} has no name, and stands behind arguments with names")
            if place >= len(names):
                raise ValueError(
                    f"{signature(compiled)} takes {plural(len(names), 'argument')}, and "
                    f"{len(texts)} are given: {text!r} is too many"
                )
            given[place] = text
            continue
        is_by_name = True
        name = by_name[1]
        index = place_of(name, names)
        if index is None:
            near = get_close_matches(name, names, 1)
            has = f"did you mean {near[0]}? The kernel has" if near else "it has"
            raise ValueError(
                f"{compiled.name} has no parameter {name!r}; {has} {', '.join(names) or 'none'}"
            )
        if index in given:
            raise ValueError(f"argument {names[index]} is given twice")
        given[index] = by_name[2]
    missing = [name for index, name in enumerate(names) if index not in given]
    if missing:
        raise ValueError(
            f"{signature(compiled)} takes {plural(len(names), 'argument')}; {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing"
        )
    return given


def _numbers(
    compiled: Compiled, names: Sequence[str], given: Mapping[int, str], found: dict[int, Argument]
) -> None:
    """Add the arguments that are not arrays, those with names of others after these."""
    left = dict(given)
    for index, text in given.items():
        parameter = compiled.parameters[index]
        value = _fixed(parameter, text, said(names[index], parameter))
        if value is not _NOT_FIXED:
            found[index] = Argument(names[index], parameter, text, value)
        if value is not _NOT_FIXED or _takes_array(parameter, text):
            del left[index]
    while left:
        known = {x.name: x.number for x in found.values() if x.number is not None}
        before, refused = len(left), None
        for index, text in tuple(left.items()):
            name, parameter = names[index], compiled.parameters[index]
            try:
                value = _number(parameter, text, known, said(name, parameter))
            except UnknownNameError as error:
                if error.name not in (names[x] for x in left) or error.name == name:
                    raise
                refused = error
            else:
                found[index] = Argument(name, parameter, text, value)
                del left[index]
        if refused is not None and len(left) == before:  # each waits for another
            raise ValueError(f"{refused}; its value is not known before this one's")


_NOT_FIXED = object()


def _fixed(parameter: Parameter, text: str, what: str) -> Any:
    """Return the value of ``null``, a structure or a vector; else :data:`_NOT_FIXED`."""
    if rules.takes_address(parameter) and text == "null":
        return None
    if parameter.type != "b8":
        return _NOT_FIXED
    kind, lanes = elements.lanes(parameter.declared)
    form, _, rest = text.partition(":")
    try:
        if form == "hex":
            return bytes.fromhex(rest)
        if form == "struct":
            layout, _, values = rest.partition(":")
            return _packed(layout, [x for x in values.split(",") if x.strip()], what)
    except (ValueError, struct.error) as error:
        raise ValueError(f"{what} is {text!r}: {error}") from None
    if parameter.declared in ("__half", "__nv_bfloat16"):
        return _NOT_FIXED
    if lanes > 1:
        parts = text.split(",")
        if len(parts) != lanes:
            raise ValueError(f"{what} is {text!r}; it takes {lanes} numbers with commas")
        numbers = [float(evaluate(x, {}, what)) for x in parts]
        return np.array(numbers, dtype_of(kind, what)).tobytes()
    raise ValueError(
        f"{what} is {text!r}; it takes a structure of {plural(parameter.size, 'byte')}, as "
        "struct:FORMAT:VALUE,VALUE (as struct:if:3,2.5 for an int and a float) or hex:BYTES"
    )


def _packed(layout: str, values: Sequence[str], what: str) -> bytes:
    """Return a structure's bytes; a layout without a sign has C's own alignment."""
    if layout[:1] not in "@=<>!" or not layout:
        layout = f"@{layout}"
    letters = re.sub(r"[\s@=<>!]|\d*x", "", layout)
    kinds = "".join(letter * int(many or 1) for many, letter in re.findall(r"(\d*)(\D)", letters))
    if len(kinds) != len(values):
        raise ValueError(
            f"the format has {plural(len(kinds), 'value')}, and {len(values)} are given"
        )
    return struct.pack(layout, *(
        float(evaluate(x, {}, what)) if kind in "efd" else whole(x, {}, what)
        for kind, x in zip(kinds, values, strict=True)
    ))  # fmt: skip


def _takes_array(parameter: Parameter, text: str) -> bool:
    if not rules.takes_address(parameter):
        return False
    return parameter.declared.endswith("*") or is_array(text)


def _number(parameter: Parameter, text: str, known: Mapping[str, Number], what: str) -> Any:
    """Return the value of a parameter that is a number."""
    if is_array(text):
        raise TypeError(f"{what} takes a number, and {text!r} is an array")
    if text.lower() in _BOOLEANS:
        text = text.capitalize()
    if parameter.declared in ("__half", "__nv_bfloat16"):
        name = elements.meant(f"{parameter.declared}*")[0]
        return dtype_of(name, what).type(float(evaluate(text, known, what)))
    if parameter.type.startswith("f"):
        return float(evaluate(text, known, what))
    value = whole(text, known, what)
    low, high = elements.bounds(parameter.declared, 8 * parameter.size)
    if not low <= value <= high:
        shown = value if str(value) == text else f"{text} = {value}"
        kind = parameter.declared or f"{8 * parameter.size} bits"
        raise ValueError(f"{what} is {shown}, which does not fit {kind}: it takes {low} to {high}")
    return bool(value) if parameter.declared == "bool" else value


def _refuse_number(text: str, numbers: Mapping[str, Number], what: str, declared: str) -> None:
    """Raise an error if a number is given for a pointer."""
    try:
        value = evaluate(text, numbers, what)
    except ValueError:
        return  # whatever it is, it is told as an array that is none
    size = text if isinstance(value, int) and value > 0 else "1024"
    raise TypeError(f"{what} is {text}, a number; {declared} takes {FORMS}: as zeros:{size}")


def _check_memory(found: Arguments) -> None:
    """Raise MemoryError where the arrays would not fit: else the system ends the process."""
    needed = _COPIES * sum(x.plan.bytes for x in found.each if x.plan is not None)
    there = host_memory.installed()
    if there is not None and there < needed:
        raise MemoryError(
            f"the arrays and their copies take {needed / 2**30:,.1f} GiB, and it has "
            f"{there / 2**30:,.1f} GiB"
        )
