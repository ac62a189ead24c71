"""The command line, ``tilewise``: parse, call, print.

Every command takes ``--json``, and then standard output is one JSON document, also where the
command fails; ``bench``, ``climb`` and ``ceilings``, whose documents are kept, take a file for it,
or ``-``.
The exit code is 0 where the result is right, 1 where it is wrong, a check found a fault or a kernel
took more than its limits, 2 for
bad arguments and for what this machine lacks, 130 after Ctrl-C.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer

from tilewise import __version__
from tilewise.cli.commands import (
    climb,
    kernels,
    machine,
    product,
    profile,
    roofline,
    tiles,
    warm,
    watch,
)
from tilewise.cli.commands.options import BAD, INTERRUPTED, RIGHT, WRONG, print_json
from tilewise.errors import (
    CheckError,
    DeviceUnavailableError,
    KernelAssertError,
    LimitError,
    TilewiseError,
)

UNREAD = 141  # 128 + SIGPIPE, as of a program that the signal ends
ON_EITHER = ("run", "ladder", "demo")  # the commands that have --device

# What typer raises for a bad command line has this base, and no public name of its own.
UsageError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


for command in (
    kernels.run,
    kernels.ladder,
    kernels.kernels,
    kernels.demo,
    profile.profile,
    watch.watch,
    product.bench,
    climb.climb,
    product.explain,
    product.tune,
    warm.warm,
    tiles.tiles,
    tiles.occupancy,
    roofline.roofline,
    roofline.ceilings,
    machine.doctor,
):
    app.command()(command)


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
        code = int(app(words, prog_name="tilewise", standalone_mode=False) or RIGHT)
        if code == INTERRUPTED:  # what typer makes of Ctrl-C
            raise KeyboardInterrupt
        return code
    except UsageError as error:
        told = getattr(error, "format_message", error.__str__)()
        hint = "`tilewise --help` lists the commands, `tilewise COMMAND --help` its options."
        return _fail(error, told, BAD, words, hint)
    except (CheckError, KernelAssertError, LimitError) as error:
        return _fail(error, str(error), WRONG, words)
    except ImportError as error:
        return _fail(
            error, f"{error}", BAD, words, "`tilewise doctor` says what is missing for what."
        )
    except DeviceUnavailableError as error:
        hint = "`tilewise doctor` says what is missing for what."
        if words[0] in ON_EITHER:
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
    if words[:1] not in (["bench"], ["climb"], ["ceilings"]):
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
    from tilewise.cli import show

    show.error(message, hint)
    return code
