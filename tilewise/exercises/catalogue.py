"""The exercises: folders with a text, a file to complete, tests, goals and a model solution.

``exercise.toml`` says how the kernel is launched, with which arguments, what should come of it, and
what its counters should be. What is an expression there is read by :mod:`tilewise.specs`: nothing
of it is executed that is not listed there, so that an exercise may come from anybody.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from tilewise.compiler.declared import type_of

FOLDER = Path(__file__).parent / "data"
SPEC, TEXT, START, SOLUTION = "exercise.toml", "text.md", "start.cu", "solution.cu"
_PARAMETER = re.compile(r"\s*(?P<declared>[^=]*?(?P<name>[A-Za-z_]\w*))\s*=\s*(?P<text>.+)")
_REQUIRED = ("title", "teaches", "kernel", "parameters", "grid", "block", "expect", "tests")
_OPTIONAL = ("shared", "threads", "exact", "goals", "values", "instructions")
_RULES = ("at_most", "at_least", "exactly")


@dataclass(frozen=True)
class Parameter:
    """A parameter of the kernel, and its argument.

    Attributes
    ----------
    name : str
        The name in expressions; the submission may use another.
    declared : str
        The declaration, such as ``"const float* x"``.
    type : str
        The type without qualifiers, such as ``"float*"``.
    text : str
        An expression of the sizes, or an array: a form of :mod:`tilewise.specs.arrays`; or
        ``whole:SHAPE``, small integers other than 0, whose sums float32 holds without rounding; or
        ``spike:SHAPE:PLACE:VALUE``, normal numbers, and in each row one element with that value.
    """

    name: str
    declared: str
    type: str
    text: str


@dataclass(frozen=True)
class Test:
    """A launch whose result is compared.

    Attributes
    ----------
    name : str
        The name, such as ``"test 1"`` or ``"hidden test 2"``.
    number : int
        The number among all tests, from 0, which is part of the seed.
    sizes : mapping of str to int or (int, int)
        A pair is a range, both ends included, from which the seed draws.
    given : mapping of str to str
        The arguments that differ from the usual ones, by the parameter's name.
    is_hidden : bool
        Whether ``show`` and ``start`` leave it out, and reports don't say its sizes and values.
    has_goals : bool
        Whether the goals hold for it.
    note : str
        The subject of the test.
    """

    name: str
    number: int
    sizes: Mapping[str, int | tuple[int, int]]
    given: Mapping[str, str] = field(default_factory=dict)
    is_hidden: bool = False
    has_goals: bool = True
    note: str = ""


@dataclass(frozen=True)
class Goal:
    """The required value of a figure of a launch.

    Attributes
    ----------
    figure : str
        A name of :data:`tilewise.exercises.goals.FIGURES`.
    rule : str
        ``"at_most"``, ``"at_least"`` or ``"exactly"``.
    limit : str
        An expression of the sizes, ``blocks``, ``threads`` and ``warps`` (of a block).
    aim : str
        The purpose of the goal, in a sentence.
    weight : int
        The weight of its share of the points for goals.
    """

    figure: str
    rule: str
    limit: str
    aim: str
    weight: int = 1


@dataclass(frozen=True)
class Exercise:
    """An exercise.

    Attributes
    ----------
    name, title, teaches, kernel : str
    folder : Path
    parameters : tuple of Parameter
    grid, block, shared : str
        Expressions of the sizes, and of ``threads``.
    threads : int or None
        The threads of a block, if the submission may have others by ``__launch_bounds__``; the
        expressions then use ``threads``. None if they are fixed.
    expect : tuple of str
        The expected values, such as ``"y = a*x"``.
    is_exact : bool
        Whether every correct order of operations gives the same bits.
    tests : tuple of Test
    goals : tuple of Goal
    values : mapping of str to str
        Arrays that the expressions of ``expect`` use besides the arguments.
    instructions : int
        The most instructions that each launch may execute.
    """

    name: str
    title: str
    teaches: str
    kernel: str
    folder: Path
    parameters: tuple[Parameter, ...]
    grid: str
    block: str
    shared: str
    threads: int | None
    expect: tuple[str, ...]
    is_exact: bool
    tests: tuple[Test, ...]
    goals: tuple[Goal, ...]
    values: Mapping[str, str]
    instructions: int

    @property
    def signature(self) -> str:
        """The kernel's, as its source should declare it."""
        return f"{self.kernel}({', '.join(each.declared for each in self.parameters)})"

    @property
    def file(self) -> str:
        """The default name of a submission's file."""
        return f"{self.name.replace('-', '_')}.cu"

    @property
    def text(self) -> str:
        """The page that explains it."""
        return (self.folder / TEXT).read_text(encoding="utf-8")

    @property
    def start(self) -> str:
        """The file to complete."""
        return (self.folder / START).read_text(encoding="utf-8")

    @property
    def solution(self) -> str:
        """The model solution."""
        return (self.folder / SOLUTION).read_text(encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, without the hidden tests, the text and the files."""
        shown = [test for test in self.tests if not test.is_hidden]
        return {
            "name": self.name,
            "title": self.title,
            "teaches": self.teaches,
            "kernel": self.signature,
            "grid": self.grid,
            "block": self.block,
            "shared": self.shared,
            "threads": self.threads,
            "expect": list(self.expect),
            "tests": [{"name": x.name, "note": x.note, **x.sizes, **x.given} for x in shown],
            "hidden_tests": len(self.tests) - len(shown),
            "goals": [{"figure": x.figure, x.rule: x.limit, "aim": x.aim} for x in self.goals],
        }


@cache
def exercises() -> tuple[Exercise, ...]:
    """Return all exercises of tilewise, in the order in which they teach."""
    return tuple(read(each) for each in sorted(FOLDER.iterdir()) if (each / SPEC).is_file())


def find(name: str) -> Exercise:
    """Return the exercise of a name, or the one in a folder of one's own.

    Raises
    ------
    ValueError
        If there is none, or its file of tests and goals is wrong.
    FileNotFoundError
        If one of its files is missing.
    """
    for each in exercises():
        if each.name == name:
            return each
    if (Path(name) / SPEC).is_file():
        return read(Path(name))
    if Path(name).is_dir():
        raise FileNotFoundError(f"{name} is no exercise: it has no {SPEC}")
    near = get_close_matches(name, [each.name for each in exercises()], 1)
    meant = f"; did you mean {near[0]}?" if near else "."
    raise ValueError(
        f"there is no exercise {name!r}{meant} `tilewise exercises` lists them, and a folder with "
        f"{SPEC} is one, too"
    )


def read(folder: Path) -> Exercise:
    """Read an exercise from its folder.

    Raises
    ------
    FileNotFoundError
        If one of its files is missing.
    ValueError
        If its ``exercise.toml`` is wrong; the message names what.
    """
    for name in (SPEC, TEXT, START, SOLUTION):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"the exercise in {folder} has no {name}")
    what = str(folder / SPEC)
    try:
        spec = tomllib.loads((folder / SPEC).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{what}: {error}") from None
    missing = [key for key in _REQUIRED if not spec.get(key)]
    unknown = [key for key in spec if key not in (*_REQUIRED, *_OPTIONAL)]
    if missing or unknown:
        wrong = f"{missing[0]} is missing" if missing else f"{unknown[0]} is not known"
        raise ValueError(f"{what}: {wrong}; it takes {', '.join((*_REQUIRED, *_OPTIONAL))}")
    parameters = tuple(_parameter(text, what) for text in spec["parameters"])
    return Exercise(
        re.sub(r"^\d+_", "", folder.resolve().name).replace("_", "-"),
        spec["title"], spec["teaches"], spec["kernel"], folder, parameters,
        str(spec["grid"]), str(spec["block"]), str(spec.get("shared", "0")),
        spec.get("threads"), tuple(spec["expect"]), bool(spec.get("exact", False)),
        _tests(spec["tests"], parameters, what),
        tuple(_goal(each, what) for each in spec.get("goals", ())),
        spec.get("values", {}), spec.get("instructions", 500_000),
    )  # fmt: skip


def _parameter(text: str, what: str) -> Parameter:
    found = _PARAMETER.fullmatch(text)
    kind = "" if found is None else type_of(found["declared"])
    if found is None or not kind:
        raise ValueError(
            f"{what}: the parameter {text!r} is not understood; write it as "
            "'const float* x = random:n'"
        )
    return Parameter(found["name"], found["declared"].strip(), kind, found["text"].strip())


def _tests(
    tables: list[dict[str, Any]], parameters: tuple[Parameter, ...], what: str
) -> tuple[Test, ...]:
    names = {each.name for each in parameters}
    counts = {False: 0, True: 0}
    found = []
    for number, table in enumerate(tables):
        is_hidden = bool(table.get("hidden", False))
        counts[is_hidden] += 1
        name = f"{'hidden ' * is_hidden}test {counts[is_hidden]}"
        sizes: dict[str, int | tuple[int, int]] = {}
        given: dict[str, str] = {}
        for key, value in table.items():
            if key in ("hidden", "goals", "note"):
                continue
            if isinstance(value, str) and key in names:
                given[key] = value
            elif isinstance(value, int) and not isinstance(value, bool):
                sizes[key] = value
            elif isinstance(value, list) and len(value) == 2 and value[0] <= value[1]:
                sizes[key] = (int(value[0]), int(value[1]))
            else:
                raise ValueError(
                    f"{what}: {name} has {key} = {value!r}; it takes sizes, as n = 100 or "
                    "n = [90, 110], and arguments of the kernel, as x = 'zeros:n'"
                )
        found.append(Test(
            name, number, sizes, given, is_hidden, bool(table.get("goals", True)),
            str(table.get("note", "")),
        ))  # fmt: skip
    return tuple(found)


def _goal(table: dict[str, Any], what: str) -> Goal:
    rules = [rule for rule in _RULES if rule in table]
    weight = table.get("weight", 1)
    is_known = len(rules) == 1 and {*table, "weight"} == {"figure", "aim", "weight", rules[0]}
    if not (is_known and isinstance(weight, int) and weight > 0):
        raise ValueError(
            f"{what}: the goal {table} is not understood; it takes figure, aim, one of "
            f"{', '.join(_RULES)}, and perhaps a weight from 1"
        )
    return Goal(table["figure"], rules[0], str(table[rules[0]]), table["aim"], weight)
