"""The command line, ``tilewise``: parse, call, print.

Every command takes ``--json``, and then standard output is one JSON document, also where the
command fails; ``bench``, whose document is kept, takes a file for it, or ``-``. The exit code is 0
where the result is right, 1 where it is wrong or a check found a fault, 2 for bad arguments and
for what this machine lacks, 130 after Ctrl-C.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewise import __version__
from tilewise import doctor as diagnosis
from tilewise.errors import (
    CheckError,
    DeviceUnavailableError,
    KernelAssertError,
    TilewiseError,
)

RIGHT, WRONG, BAD, INTERRUPTED = 0, 1, 2, 130
UNREAD = 141  # 128 + SIGPIPE, as of a program that the signal ends
DEFAULT_SIZE = 64

# What typer raises for a bad command line has this base, and no public name of its own.
UsageError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Dtype(StrEnum):
    float32 = "float32"
    float64 = "float64"


class Half(StrEnum):
    bfloat16 = "bfloat16"
    float16 = "float16"


class Dtypes(StrEnum):
    bfloat16 = "bfloat16"
    float16 = "float16"
    float32 = "float32"
    float64 = "float64"


class Layout(StrEnum):
    NN = "NN"
    NT = "NT"
    TN = "TN"
    TT = "TT"


class Suite(StrEnum):
    square = "square"
    llm = "llm"
    odd = "odd"
    all = "all"


class Rival(StrEnum):
    torch = "torch"


class Place(StrEnum):
    auto = "auto"
    gpu = "gpu"
    emulator = "emulator"


M = Annotated[int | None, typer.Option("-m", metavar="M", help="Rows of A and C.")]
N = Annotated[int | None, typer.Option("-n", metavar="N", help="Columns of B and C.")]
K = Annotated[int | None, typer.Option("-k", metavar="K", help="Columns of A, rows of B.")]
RequiredM = Annotated[int, typer.Option("-m", metavar="M", help="Rows of A and of the result.")]
RequiredN = Annotated[int, typer.Option("-n", metavar="N", help="Columns of B and of the result.")]
RequiredK = Annotated[int, typer.Option("-k", metavar="K", help="Columns of A, rows of B.")]
Stored = Annotated[Layout, typer.Option(help="A's letter and B's: T is stored transposed.")]
Tile = Annotated[
    int | None, typer.Option(help="Edge of a block or tile, 2 to 32. By default the rung's own.")
]
Device = Annotated[Place, typer.Option(help="auto is the GPU where there is one.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document for machines.")]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Matrix multiplication one tile at a time, on a GPU or on an emulator of one."""
    if version:
        print(f"tilewise {__version__}")
        raise typer.Exit(RIGHT)
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(BAD)


# What compiles, emulates and multiplies is imported by the command that does it: --help and
# --version answer at once, and doctor answers where a package is missing.


@app.command()
def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUNG|FILE.cu:NAME",
            help="A rung of the ladder, or any kernel that has its signature.",
        ),
    ],
    m: M = None,
    n: N = None,
    k: K = None,
    a: Annotated[Path | None, typer.Option(help="Matrix A, a .npy file.")] = None,
    b: Annotated[Path | None, typer.Option(help="Matrix B, a .npy file.")] = None,
    c: Annotated[Path | None, typer.Option(help="Matrix C, a .npy file, for beta.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the result, a .npy file.")] = None,
    tile: Tile = None,
    dtype: Annotated[Dtype | None, typer.Option(help="By default float32.")] = None,
    alpha: Annotated[float, typer.Option(help="C = alpha A B + beta C.")] = 1.0,
    beta: Annotated[float, typer.Option()] = 0.0,
    device: Device = Place.auto,
    seed: Annotated[int | None, typer.Option(help="Of the random matrices.")] = None,
    as_json: Json = False,
) -> int:
    """One kernel on one problem: is it right, and what did it do?

    The matrices are random, 64 wide where no size is given, or those of --a, --b and --c.
    """
    from tilewise import matrix_files, show
    from tilewise import run as runs
    from tilewise.devices import get_device

    if out is not None:
        matrix_files.check_target(out)
    given = {"A": a, "B": b, "C": c}
    if any(given.values()):
        matrices = _read(given, beta, {"-m": m, "-n": n, "-k": k}, dtype, seed)
    else:
        matrices = _random(m, n, k, dtype, seed or 0)
    left, right, start = matrices
    place = get_device(device.value)
    with show.block_progress(place, f"running {target}"):
        result = runs.run(
            target,
            left,
            right,
            start if beta != 0 else None,
            alpha=alpha,
            beta=beta,
            tile=tile,
            device=place,
        )
    correct = bool(result.check.correct)
    if out is not None and correct:
        matrix_files.save_matrix(out, result.result)
    if as_json:
        print_json({**result.to_dict(), "out": str(out) if out is not None and correct else None})
    else:
        show.run_result(result)
        if out is not None:
            print(f"{out}: {'C written' if correct else 'not written, the result is wrong'}")
    return RIGHT if correct else WRONG


def _random(
    m: int | None, n: int | None, k: int | None, dtype: Dtype | None, seed: int
) -> tuple[Any, Any, Any]:
    from tilewise.problem import random_problem

    rows, columns, depth = (DEFAULT_SIZE if size is None else size for size in (m, n, k))
    return random_problem(rows, columns, depth, (dtype or Dtype.float32).value, seed)


def _read(
    given: Mapping[str, Path | None],
    beta: float,
    sizes: Mapping[str, int | None],
    dtype: Dtype | None,
    seed: int | None,
) -> tuple[Any, Any, Any]:
    """The matrices of --a, --b and --c, held against the other options."""
    from tilewise.matrix_files import load_matrix

    for name in ("A", "B"):
        if given[name] is None:
            raise ValueError(
                f"--{name.lower()} is missing: --a and --b go together, and --c with them"
            )
    if beta != 0 and given["C"] is None:
        raise ValueError(f"beta is {beta:g}, so C is read: give it with --c, or leave beta at 0")
    if beta == 0 and given["C"] is not None:
        raise ValueError("--c is given, but beta is 0, so C is not read: give --beta, or no --c")
    if seed is not None:
        raise ValueError("--seed is for random matrices; with --a and --b nothing is random")
    left, right, start = (
        None if path is None else load_matrix(path, name) for name, path in given.items()
    )
    assert left is not None
    assert right is not None
    for option, found in zip(sizes, (left.shape[0], right.shape[1], left.shape[1]), strict=True):
        wanted = sizes[option]
        if wanted is not None and wanted != found:
            raise ValueError(
                f"{option} is {wanted}, but the files say {found}; with --a and --b leave it out"
            )
    if dtype is not None and left.dtype != dtype.value:
        raise ValueError(
            f"--dtype is {dtype.value}, but {given['A']} is {left.dtype}; "
            "with --a and --b leave it out"
        )
    return left, right, start


@app.command()
def ladder(
    m: M = None,
    n: N = None,
    k: K = None,
    tile: Tile = None,
    dtype: Annotated[Dtype, typer.Option()] = Dtype.float32,
    device: Device = Place.auto,
    seed: Annotated[int, typer.Option(help="Of the random matrices.")] = 0,
    as_json: Json = False,
) -> int:
    """Every rung on one problem, a row each.

    A size that is not given is 64 on the emulator and 1024 on a GPU. A rung that can't do the
    problem's size runs at one that it can, and its row says which.
    """
    from tilewise import climb, show

    place = climb.choose_device(device.value)
    size = 1024 if place == "gpu" else DEFAULT_SIZE
    rows, columns, depth = (size if given is None else given for given in (m, n, k))
    problem = climb.Climb(rows, columns, depth, dtype.value, tile, place, seed)
    with show.progress(len(problem.rungs), "ladder") as step:
        document = problem.run(step)
    if as_json:
        print_json(document)
    else:
        show.ladder(document)
    return RIGHT if document["correct"] else WRONG


@app.command()
def demo(device: Device = Place.auto, as_json: Json = False) -> int:
    """Multiply a picture by a matrix that mirrors and blurs it, and see what a tile saves."""
    from tilewise import demo as picture
    from tilewise import show

    with show.progress(None, "multiplying"):
        found = picture.multiply(device.value)
    if as_json:
        print_json(found.to_dict())
    else:
        show.demo(found)
    return RIGHT if found.correct else WRONG


@app.command()
def bench(
    suite: Annotated[
        Suite,
        typer.Option(
            help="square: 128 to 16384; llm: weights of language models; odd: strides, depths and "
            "layouts that don't fit; or all."
        ),
    ] = Suite.square,
    dtype: Annotated[Half, typer.Option(help="Of A and B.")] = Half.bfloat16,
    rival: Annotated[Rival, typer.Option(help="What is timed beside ours.")] = Rival.torch,
    rounds: Annotated[int, typer.Option(help="The median of so many counts.")] = 5,
    seconds: Annotated[float, typer.Option(help="Of each, a product and round.")] = 0.1,
    record_to: Annotated[
        Path | None,
        typer.Option("--json", metavar="F", help="Write what was measured; - prints it."),
    ] = None,
    plot_to: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="F.png", help="Draw the squares, and the ladder measured beside them."
        ),
    ] = None,
) -> int:
    """How fast matmul is beside PyTorch's, on an NVIDIA GPU.

    Each product is checked, then both are timed in turn.
    """
    from tilewise import show
    from tilewise.bench import plot, record
    from tilewise.bench.suites import SUITES
    from tilewise.matrix_files import check_target
    from tilewise.provenance import write_whole

    suites = tuple(SUITES) if suite is Suite.all else (suite.value,)
    settings = record.Settings(suites, dtype.value, rounds, seconds, plot_to is not None)
    if plot_to is not None:
        if "square" not in suites:
            raise ValueError(f"--plot draws squares, and --suite {suite.value} has none")
        plot.check(plot_to)
    for path in (record_to, plot_to):
        if path is not None and str(path) != "-":
            check_target(path)
    command = ["tilewise", "bench", "--suite", suite.value, "--dtype", dtype.value, "--rival",
               rival.value, "--rounds", str(rounds), "--seconds", f"{seconds:g}"]  # fmt: skip
    for option, path in (("--json", record_to), ("--plot", plot_to)):
        command += [option, str(path)] if path is not None else []
    gpu = record.find_gpu()
    with show.progress(settings.steps, "bench") as step:
        document = record.run(settings, gpu, step, command)
    if str(record_to) == "-":
        print_json(document)
    else:
        show.bench(document)
        if record_to is not None:
            write_whole(record_to, json.dumps(_plain(document), indent=1).encode() + b"\n")
            print(f"{record_to}: written")
    if plot_to is not None:
        plot.draw(document, plot_to)
    return RIGHT if document["correct"] else WRONG


@app.command()
def explain(
    m: RequiredM,
    n: RequiredN,
    k: RequiredK,
    dtype: Annotated[Dtypes, typer.Option(help="Of all three matrices.")] = Dtypes.bfloat16,
    layout: Stored = Layout.NN,
    multiprocessors: Annotated[int, typer.Option(help="Of the GPU; an H200 has 132.")] = 132,
    as_json: Json = False,
) -> int:
    """How matmul would answer a product on an H200, and why so; needs no GPU.

    It says the kernel, its tiles and launches, what the model expects of them, and of others.
    """
    from dataclasses import replace

    from tilewise.explain import explain_product, of_shape
    from tilewise.tuned import H200

    if multiprocessors < 1:
        raise ValueError(f"--multiprocessors is {multiprocessors}; a GPU has at least 1")
    product = of_shape(m, n, k, dtype.value, layout.value)
    found = explain_product(product, replace(H200, multiprocessors=multiprocessors))
    if as_json:
        print_json(found.to_dict())
    else:
        print(found)
    return RIGHT


@app.command()
def tune(
    m: RequiredM,
    n: RequiredN,
    k: RequiredK,
    dtype: Annotated[Half, typer.Option(help="Of all three matrices.")] = Half.bfloat16,
    layout: Stored = Layout.NN,
    seconds: Annotated[float, typer.Option(help="Of timing, roughly.")] = 2.0,
    as_json: Json = False,
) -> int:
    """Measure the tilings that should be fastest, on a Hopper GPU, and keep the winner.

    matmul takes it from then on for products of this shape, layout and dtype.
    """
    from tilewise import show
    from tilewise.tune import steps
    from tilewise.tune import tune as measure

    with show.progress(steps(1), "tune") as step:
        (found,) = measure(
            (m, n, k), dtype=dtype.value, layout=layout.value, seconds=seconds, step=step
        )
    if as_json:
        print_json(found.to_dict())
    else:
        show.tuned(found)
    return RIGHT if found.correct else WRONG


@app.command()
def doctor(as_json: Json = False) -> int:
    """What this machine has, and what is missing for what."""
    found = diagnosis.diagnose()
    if as_json:
        print_json(found.to_dict())
    else:
        from tilewise import show

        show.diagnosis(found)
    return RIGHT if found.ok else BAD


def print_json(document: Mapping[str, Any]) -> None:
    """``document`` on standard output; NaN and infinity, which JSON lacks, as null."""
    print(json.dumps(_plain(document), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str):  # a NumPy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what its encoding lacks is no reason to fail
            stream.reconfigure(errors="replace")
    try:
        code = _answer(words)
        sys.stdout.flush()
    except BrokenPipeError:  # `tilewise ladder | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    return code


def _answer(words: Sequence[str]) -> int:
    """Carry out the command line, or say why it can't be; return the exit code."""
    try:
        return int(app(words, prog_name="tilewise", standalone_mode=False) or RIGHT)
    except UsageError as error:
        told = getattr(error, "format_message", error.__str__)()
        hint = "`tilewise --help` lists the commands, `tilewise COMMAND --help` its options."
        return _fail(error, told, BAD, words, hint)
    except (CheckError, KernelAssertError) as error:
        return _fail(error, str(error), WRONG, words)
    except ImportError as error:
        return _fail(
            error, f"{error}", BAD, words, "`tilewise doctor` says what is missing for what."
        )
    except DeviceUnavailableError as error:
        hint = "`tilewise doctor` says what is missing for what."
        if words[:1] not in (["bench"], ["tune"]):
            hint = f"`--device emulator` needs no GPU; {hint}"
        return _fail(error, str(error), BAD, words, hint)
    except SystemExit:
        # The one way that typer still ends the process itself: nobody reads standard output.
        raise BrokenPipeError from None
    except BrokenPipeError:
        raise
    except (TilewiseError, ValueError, TypeError, OSError) as error:
        return _fail(error, str(error), BAD, words)
    except (MemoryError, OverflowError) as error:
        return _fail(error, f"too large for this machine: {error}", BAD, words)
    except (KeyboardInterrupt, typer.Abort) as error:
        return _fail(error, "interrupted", INTERRUPTED, words)


def _as_json(words: Sequence[str]) -> bool:
    """Whether standard output is to be one JSON document."""
    if words[:1] != ["bench"]:
        return "--json" in words
    return "--json=-" in words or ("--json", "-") in pairwise(words)


def _fail(
    error: BaseException, message: str, code: int, words: Sequence[str], hint: str = ""
) -> int:
    """Say what was wrong, on standard error and, with --json, on standard output."""
    if _as_json(words):
        findings = error.findings if isinstance(error, CheckError) else ()
        document: dict[str, Any] = {"error": message, "kind": type(error).__name__}
        if findings:
            document["findings"] = [finding.to_dict() for finding in findings]
        print_json(document)
    from tilewise import show

    show.error(message, hint)
    return code
