"""The house: which package may import which, so that no import runs up the layers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "tilewise"
EMULATOR = "tilewise.devices.emulator"
MACHINE = f"{EMULATOR}.machine"

LAYERS = (
    "environment", "host_memory", "masked", "shown", "sizes", "flags", "precision", "roundoff",
    "certain", "numbers", "places", "pointer", "tensor_map", "limits", "targets", "counted",
    "launch", "errors", "tracebacks", "epilogue", "compiler", "devices", "isolated",
    "isolated_process", "variables",
    "launchable", "kernel", "listed", "listing", "python_kernels", "triton", "numba",
    "provenance", "gemm", "arrays", "host", "ladder", "specs", "exercises", "torch", "matmul",
    "grouped", "files", "explanation", "explain", "lens", "notebook", "bench", "tune", "warm",
    "", "cli", "__main__",
)  # fmt: skip
"""The parts of tilewise, each of which imports only those before it; ``""`` is the package's own
``__init__``, which offers the front doors."""

UPWARD = {
    ("tilewise.launchable", "lens"): "Kernel.profile and Kernel.watch look through the lens",
    ("tilewise.lens.nsight", ""): "finds the package's folder, to run it under Nsight Compute",
    ("tilewise.provenance", ""): "reads __version__",
}
"""Imports that run up the layers all the same: a module, what it imports, and why."""

ROOMS = (
    "ptx", "arithmetic", "threads", "memory", "counting", "checks", "synchronisation", "access",
    "copies", "matrices", "instructions", "sampling", "recording", "setup", "machine", "programs",
    "device", "",
)  # fmt: skip
"""The rooms of the emulator; above them, in the same order, the machine, the device, and the
modules that those two use.
"""

SLOW = "imported when it is used, so that `import tilewise` and the command line start quickly"
OPTIONAL = "what it imports needs packages that are optional, as torch"
TIMED = "its import is timed, in a process of its own"
LAZY = {
    ("tilewise", "tilewise.lens.profiling"): SLOW,
    ("tilewise", "tilewise.lens.watch"): SLOW,
    ("tilewise.bench.first_call", "tilewise.matmul"): TIMED,
    ("tilewise.bench.first_call", "tilewise.bench.*"): OPTIONAL,
    ("tilewise.bench.record", "tilewise.bench.*"): OPTIONAL,
    ("tilewise.bench.rungs", "tilewise.lens.ceilings"): SLOW,
    ("tilewise.cli.*", "tilewise.*"): SLOW,
    ("tilewise.devices.emulated", EMULATOR): SLOW,
    ("tilewise.gemm.steps", f"{EMULATOR}.*"): SLOW,
    ("tilewise.launchable", "tilewise.lens.profiling"): SLOW,
    ("tilewise.launchable", "tilewise.lens.watch"): SLOW,
    ("tilewise.grouped", "tilewise.torch.grouped"): OPTIONAL,
    ("tilewise.matmul", "tilewise.torch.operator"): OPTIONAL,
    ("tilewise.tune", "tilewise.bench.*"): OPTIONAL,
}
"""Imports of tilewise's own modules inside functions: who, whom, and why. One that breaks a circle
has no place here: what both sides share moves down instead."""


@dataclass(frozen=True)
class Import:
    """One module's import of another.

    Attributes
    ----------
    importer, imported : str
        Full names.
    is_lazy : bool
        Whether it stands in a function.
    is_typing : bool
        Whether only type checkers see it.
    line : int
    """

    importer: str
    imported: str
    is_lazy: bool
    is_typing: bool
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def name_of(path: Path) -> str:
    """A file's module."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports_of(module: str, source: str) -> Iterator[Import]:
    """All imports of tilewise's own modules in a module's source."""

    def visit(node: ast.AST, is_lazy: bool, is_typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{module}:{child.lineno}: a relative import"
                whole = [f"{child.module}.{alias.name}" for alias in child.names]
                names = [name if name in MODULES else str(child.module) for name in whole]
            elif isinstance(child, ast.expr):  # no statement is part of one
                continue
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                yield from visit(child, is_lazy or inside, is_typing or guarded)
                continue
            for name in names:
                if name.split(".")[0] == "tilewise":
                    yield Import(module, name, is_lazy, is_typing, child.lineno)

    yield from visit(ast.parse(source), False, False)


@cache
def every_import() -> tuple[Import, ...]:
    """All imports of tilewise's own modules, read when a test first asks for them."""
    return tuple(
        found
        for name, path in MODULES.items()
        for found in imports_of(name, path.read_text("utf-8"))
    )


def is_below(module: str, package: str) -> bool:
    """Whether a module is a package, or in it."""
    return module == package or module.startswith(package + ".")


def layer_of(module: str) -> str:
    """The part of tilewise that a module is in, or is."""
    return [*module.split("."), ""][1]


def room_of(module: str) -> str:
    """The room of one of the emulator's modules."""
    return [*module.removeprefix(EMULATOR).split("."), ""][1]


def is_upward(found: Import) -> bool:
    """Whether an import runs up the layers."""
    importer, imported = layer_of(found.importer), layer_of(found.imported)
    return LAYERS.index(imported) > LAYERS.index(importer)


def test_what_is_looked_at() -> None:
    """The reader of imports sees them, wherever they stand."""
    source = (
        "from typing import TYPE_CHECKING\n"
        "from tilewise.launch import Dim3\n"
        "from tilewise.devices import limits, get_device\n"
        "if TYPE_CHECKING:\n    import tilewise.kernel\n"
        "class A:\n    def f(self):\n        from tilewise import gemm\n"
    )
    assert list(imports_of("tilewise.x", source)) == [
        Import("tilewise.x", "tilewise.launch", False, False, 2),
        Import("tilewise.x", "tilewise.devices.limits", False, False, 3),
        Import("tilewise.x", "tilewise.devices", False, False, 3),
        Import("tilewise.x", "tilewise.kernel", False, True, 5),
        Import("tilewise.x", "tilewise.gemm", True, False, 8),
    ]
    assert {layer_of(name) for name in MODULES} == set(LAYERS)
    assert {room_of(name) for name in MODULES if is_below(name, EMULATOR)} == set(ROOMS)
    assert len(every_import()) > 500


def test_no_import_runs_up_the_layers() -> None:
    """Imports in functions and for type checkers run down too."""
    upward = [found for found in every_import() if is_upward(found)]
    known = {(found.importer, layer_of(found.imported)) for found in upward}
    assert [str(x) for x in upward if (x.importer, layer_of(x.imported)) not in UPWARD] == []
    assert sorted(set(UPWARD) - known) == []  # what is mended leaves the list


@pytest.mark.parametrize("package", ["gemm", "arrays", "ladder"])
def test_the_emulator_knows_nothing_of_matrix_multiplication(package: str) -> None:
    inside = [found for found in every_import() if is_below(found.importer, EMULATOR)]
    assert [str(found) for found in inside if layer_of(found.imported) == package] == []


def test_rooms_of_the_emulator_import_one_way() -> None:
    """Only type checkers see an import that runs up: of the machine, which its parts are given."""
    upward = [
        found
        for found in every_import()
        if is_below(found.importer, EMULATOR)
        and is_below(found.imported, EMULATOR)
        and ROOMS.index(room_of(found.imported)) > ROOMS.index(room_of(found.importer))
    ]
    assert [str(x) for x in upward if not (x.is_typing and x.imported == MACHINE)] == []


def test_every_room_says_what_it_holds() -> None:
    for room in ROOMS[: ROOMS.index("setup")]:
        docstring = ast.get_docstring(ast.parse(MODULES[f"{EMULATOR}.{room}"].read_text("utf-8")))
        assert docstring, room


def test_no_circle_of_imports() -> None:
    """Not even within a package: modules load whichever of them is asked for first."""
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in every_import():
        if not (found.is_lazy or found.is_typing):
            graph[found.importer].add(found.imported)
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_imports_in_functions_have_a_reason() -> None:
    used = set()
    for found in every_import():
        if found.is_lazy:
            reasons = {
                (who, whom)
                for who, whom in LAZY
                if fnmatchcase(found.importer, who) and fnmatchcase(found.imported, whom)
            }
            assert reasons, str(found)
            used |= reasons
    assert sorted(set(LAZY) - used) == []  # what is mended leaves the list


def test_names_are_imported_from_where_they_are() -> None:
    """No module offers another's names beside its own; mypy knows of those that are not marked."""
    offered = set()
    for path in ROOT.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        source = path.read_text("utf-8")
        if not re.search(r"\b(\w+)[\s\\]+as[\s\\]+\1\b", source):  # parsing takes a while
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                offered |= {(module, each.name) for each in node.names if each.name == each.asname}
    assert offered == set()


def test_the_map_of_the_house_is_true() -> None:
    """Each place on it is there, each package is on it, and they stand in the order of layers."""
    house = (ROOT.parent / "CONTRIBUTING.md").read_text("utf-8").partition("\n## The house\n")[2]
    lines = re.findall(r"^    (\S.*?)  ", house, re.MULTILINE)
    places = [path.rstrip("/") for line in lines for path in line.split()]
    assert [x for x in places if not (ROOT / x).exists() and not (ROOT.parent / x).exists()] == []
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - set(places) == set()
    layers = [x.removesuffix(".py") for x in places if x.removesuffix(".py") in LAYERS]
    assert layers == sorted(layers, key=LAYERS.index, reverse=True)
