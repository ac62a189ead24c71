"""Launches of any kernel on the command line: ``--grid``, ``--block``, ``--args`` and results."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewise.cli.commands.options import RIGHT, WRONG, print_json

if TYPE_CHECKING:
    from tilewise.compiler import Compiled
    from tilewise.devices import Device
    from tilewise.kernel import Kernel
    from tilewise.ladder.rungs import Rung
    from tilewise.specs.arguments import Arguments
    from tilewise.specs.run import Prepared

Grid = Annotated[
    str | None,
    typer.Option(
        metavar="X[,Y[,Z]]",
        help="Blocks of the grid, for a kernel of any signature, with --block and --args. May have "
        "the arguments' names, as 'ceil(n/256)'.",
    ),
]
Block = Annotated[
    str | None, typer.Option(metavar="X[,Y[,Z]]", help="Threads of a block, with --grid.")
]
Args = Annotated[
    list[str] | None,
    typer.Option(
        "--args",
        metavar="ARG ...",
        help="The kernel's arguments, in order or as NAME=ARG: numbers, zeros:SHAPE, random:SHAPE, "
        "arange:SHAPE, empty:SHAPE, full:SHAPE:VALUE, FILE.npy, FILE.npz:KEY, null.",
    ),
]
Shared = Annotated[
    str, typer.Option(metavar="BYTES", help="Dynamic shared memory a block, with --grid.")
]
Cooperative = Annotated[
    bool,
    typer.Option("--cooperative", help="Run all blocks at once: they may wait for each other."),
]
Cast = Annotated[
    bool, typer.Option("--cast", help="Convert files' numbers to the parameters' types.")
]
Expect = Annotated[
    list[str] | None,
    typer.Option(
        "--expect",
        metavar="NAME=WHAT",
        help="What an array should be behind the launch, of what the arguments were before it: an "
        "expression, as 'y = a*x + y', or a .npy file. May be given again.",
    ),
]
Rtol = Annotated[
    float | None,
    typer.Option(help="Of --expect: allow |expected| times this, in place of rounding's bound."),
]
Atol = Annotated[float | None, typer.Option(help="Of --expect: allow this much, too.")]
Force = Annotated[bool, typer.Option("--force", help="--out may overwrite a file that is read.")]


AFTER_FAULT = 2.0
"""The most seconds for which a launch continues after its first fault, to find others. The time is
limited because a loop may never end if a faulty load gave its bound.
"""


@dataclass(frozen=True)
class Asked:
    """The options of a launch.

    Attributes
    ----------
    grid, block : str or None
    args : sequence of str or None
    shared : str
    seed : int
    is_cast : bool
    cooperative : bool
    """

    grid: str | None
    block: str | None
    args: Sequence[str] | None
    shared: str = "0"
    seed: int = 0
    is_cast: bool = False
    cooperative: bool = False

    @property
    def is_there(self) -> bool:
        """Whether a launch is asked for, and no product."""
        return self.option is not None

    @property
    def option(self) -> str | None:
        """The name of one of its options that is given."""
        given = {
            "--grid": self.grid, "--block": self.block, "--args": self.args,
            "--shared": self.shared != "0", "--cast": self.is_cast,
            "--cooperative": self.cooperative,
        }  # fmt: skip
        return next((option for option, value in given.items() if value), None)

    def check(self, target: str, kernel: Kernel | Rung, product: Mapping[str, Any]) -> Kernel:
        """Return the kernel, which must not be a rung, without options of a product.

        Parameters
        ----------
        target : str
        kernel : Kernel or Rung
        product : mapping
            The options of a product by their names, each false if it is not given.

        Raises
        ------
        ValueError
        """
        from tilewise.ladder.rungs import Rung

        if isinstance(kernel, Rung):
            raise ValueError(
                f"{self.option} is for FILE.cu:NAME; {target} is a rung of the ladder, whose sizes "
                "are -m, -n and -k"
            )
        given = [option for option, value in product.items() if value]
        if given:
            raise ValueError(
                f"{given[0]} is for products; with {self.option}, the kernel's arguments are all "
                "in --args"
            )
        return kernel

    def prepared(self, command: str, target: str, kernel: Kernel, arch: str) -> Prepared:
        """Return the launch, checked.

        Raises
        ------
        CompileError, LaunchError, OSError, MemoryError, ValueError, TypeError
        """
        from tilewise.specs.run import prepare

        missing = [x for x, it in (("--grid", self.grid), ("--block", self.block)) if it is None]
        compiled = kernel.compile(arch)
        if missing or (self.args is None and compiled.parameters):
            first = missing[0] if missing else "--args"
            raise ValueError(f"{first} is missing; {_can_be(command, target, kernel, compiled)}")
        assert self.grid is not None
        assert self.block is not None
        return prepare(
            kernel, self.args or (), self.grid, self.block, self.shared, arch=arch, seed=self.seed,
            is_cast=self.is_cast, cooperative=self.cooperative,
        )  # fmt: skip


@contextmanager
def advising(command: str, target: str, kernel: Kernel | Rung) -> Iterator[None]:
    """Explain how a kernel can be launched that was taken for one of a product."""
    from tilewise.errors import CompileError

    try:
        yield
    except (TypeError, CompileError) as error:
        told = own_launch(command, target, kernel)
        if not told:
            raise
        raise type(error)(f"{told}\n{error}") from None


def own_launch(command: str, target: str, kernel: Kernel | Rung) -> str:
    """Return how to launch a kernel that does not compute a product; empty for others.

    It is a sentence, with a command line below it; empty also if the kernel does not compile.
    """
    from tilewise.compiler.names import signature
    from tilewise.errors import CompileError
    from tilewise.ladder.rungs import Rung
    from tilewise.ladder.signature import takes_product

    if isinstance(kernel, Rung):
        return ""
    try:
        compiled = kernel.compile()  # without the macros of a product
    except CompileError:
        return ""
    if takes_product(compiled):
        return ""
    lines = _lines(command, target, kernel, compiled)
    return f"{signature(compiled)} is launched with its own arguments, as\n{lines}"


def _can_be(command: str, target: str, kernel: Kernel, compiled: Compiled) -> str:
    from tilewise.compiler.names import signature

    lines = _lines(command, target, kernel, compiled)
    return f"{signature(compiled)} can be launched as\n{lines}"


def _lines(command: str, target: str, kernel: Kernel, compiled: Compiled) -> str:
    """Return a command line that launches the kernel, and which launch in its file it follows."""
    from tilewise.specs.advice import advice

    found = advice(kernel, compiled)
    line = f"  tilewise {command} {shlex.quote(target)} {found.options}"
    return "\n".join(filter(None, (line, found.told)))


def spread(words: Sequence[str]) -> list[str]:
    """Return ``--args A B`` as ``--args A --args B``: the option takes all words up to the next
    one.

    A word is the next option if it begins with a hyphen and a letter, or with two hyphens; a
    negative number is not one.

    Examples
    --------
    >>> spread(["run", "k.cu:k", "--args", "1", "-2", "--json"])
    ['run', 'k.cu:k', '--args=1', '--args=-2', '--json']
    """
    out: list[str] = []
    is_inside = False
    for place, word in enumerate(words):
        is_option = word.startswith("--") or (
            word[:1] == "-" and word[1:2].isalpha() and word not in ("-inf", "-nan")
        )
        if word == "--args" and words[place + 1 : place + 2]:
            is_inside = True
        elif is_inside and not is_option:
            out.append(f"--args={word}")
        else:
            is_inside = False
            out.append(word)
    return out


def targets(
    texts: Sequence[str] | None, arguments: Arguments, inputs: Sequence[Path], is_forced: bool
) -> dict[str, Path]:
    """Return which array goes to which file, by ``--out``, after checking that it can be written.

    Parameters
    ----------
    texts : sequence of str
        ``NAME=FILE.npy``, in which the argument's place may replace its name; or a folder for all
        arrays; or, if there is only one array, its file.
    arguments : Arguments
    inputs : sequence of Path
        The files that are read.
    is_forced : bool
        Whether those may be overwritten.

    Raises
    ------
    ValueError
        If a text has another form, an array is named twice, or a file is read too.
    OSError
        If a file can't be written.
    """
    from tilewise.ladder.matrix_files import check_npy_target
    from tilewise.specs.arguments import place_of

    names = [x.name for x in arguments.arrays]
    every = [x.name for x in arguments.each]
    found: dict[str, Path] = {}
    for text in texts or ():
        name, mark, path = text.partition("=")
        if not text or (mark and not path):
            raise ValueError(_no_target(text, name, names))
        place = place_of(name, every) if mark else None
        if place is not None and every[place] in names:
            more = {every[place]: Path(path)}
        elif mark and not Path(text).parent.is_dir():
            raise ValueError(_no_target(text, name, names))
        elif Path(text).is_dir() or text.endswith("/"):
            more = {name: Path(text) / f"{name}.npy" for name in names}
        elif len(names) == 1 and not mark:
            more = {names[0]: Path(text)}
        else:
            raise ValueError(_no_target(text, name, names))
        for array in filter(found.__contains__, more):
            first, second = found[array], more[array]
            which = f"{first} both times" if first == second else f"{first} and {second}"
            raise ValueError(f"--out names {array} twice, with {which}; give each array one file")
        found |= more
    if texts and not names:
        raise ValueError("--out is given, and no argument is an array")
    read = {path.resolve() for path in inputs}
    for file in found.values():
        check_npy_target(file)
        if file.resolve() in read and not is_forced:
            raise ValueError(f"--out would overwrite {file}, which is read; --force allows it")
        if sum(other.resolve() == file.resolve() for other in found.values()) > 1:
            raise ValueError(f"two arrays would be written to {file}; give each its own file")
    return found


def _no_target(text: str, name: str, names: Sequence[str]) -> str:
    from tilewise.cli.usage import meant

    there = ", ".join(names)
    return (
        f"--out is {text!r}; it takes NAME=FILE.npy with an array's name ({there}), or a folder"
        f"{meant(name, names)}"
    )


@dataclass(frozen=True)
class After:
    """The uses of a launch's arrays afterwards.

    Attributes
    ----------
    expect : tuple of str
    rtol, atol : float or None
    out : tuple of str
    is_forced : bool
    """

    expect: tuple[str, ...] = ()
    rtol: float | None = None
    atol: float | None = None
    out: tuple[str, ...] = ()
    is_forced: bool = False

    def refuse(self, target: str, kernel: Kernel | Rung) -> None:
        """Refuse what a product has no use for, and say how the kernel is launched.

        Raises
        ------
        ValueError
            If one is given.
        """
        from tilewise.errors import CompileError
        from tilewise.ladder.rungs import Rung

        given = {
            "--expect": bool(self.expect), "--rtol": self.rtol is not None,
            "--atol": self.atol is not None, "--force": self.is_forced,
        }  # fmt: skip
        for option, is_given in given.items():
            if not is_given:
                continue
            told = f"{option} is for launches with --grid, --block and --args"
            if not isinstance(kernel, Rung):
                with suppress(CompileError):  # it may need the macros of a product
                    told += f"; {_can_be('run', target, kernel, kernel.compile())}"
            raise ValueError(told)


def run_launch(
    prepared: Prepared,
    target: str,
    place: Device,
    after: After,
    checks: str,
    global_races: bool,
    as_json: bool,
) -> int:
    """Launch, print what became of the arrays, and write those that are asked for."""
    from tilewise.cli import show
    from tilewise.ladder.matrix_files import save_matrix
    from tilewise.specs.expected import file_of
    from tilewise.specs.run import launch

    if not after.expect and (after.rtol is not None or after.atol is not None):
        raise ValueError("--rtol and --atol are for --expect, which is not given")
    read = filter(None, map(file_of, after.expect))
    files = targets(
        after.out, prepared.arguments, (*prepared.arguments.files, *read), after.is_forced
    )
    with show.block_progress(place, f"running {target}"):
        found = launch(
            prepared, device=place, expect=after.expect, rtol=after.rtol, atol=after.atol,
            checks=checks, global_races=global_races, after_fault=AFTER_FAULT,
        )  # fmt: skip
    for name, path in files.items():
        save_matrix(path, found.results[name])
    if as_json:
        print_json({**found.to_dict(), "out": {name: str(path) for name, path in files.items()}})
    else:
        show.launch_result(found)
        for name, path in files.items():
            print(f"{path}: {name} written")
    return RIGHT if found.correct else WRONG
