"""The command line, ``tilewise``: parse, call, print.

Every command takes ``--json``, and then standard output is one JSON document, also where the
command fails; ``bench``, ``climb`` and ``ceilings``, whose documents are kept, take a file for it,
or ``-``.
The exit code is 0 where the result is right, 1 where it is wrong, a check found a fault or a kernel
took more than its limits, 2 for
bad arguments and for what this machine lacks, 130 after Ctrl-C.
"""

from __future__ import annotations

import errno
import inspect
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Annotated, Any

import typer
import typer.main

from tilewise import __version__
from tilewise.cli.commands import (
    climb,
    exercises,
    files,
    kernels,
    listing,
    machine,
    product,
    profile,
    roofline,
    tiles,
    warm,
    watch,
)
from tilewise.cli.commands.launches import spread
from tilewise.cli.commands.options import BAD, INTERRUPTED, RIGHT, WRONG, print_json
from tilewise.cli.failure import failed, told
from tilewise.cli.interrupt import Interruptible, ended_at_once
from tilewise.cli.usage import HELP, help_of, sentence, without_value
from tilewise.errors import (
    CheckError,
    DeviceUnavailableError,
    KernelAssertError,
    LimitError,
    TilewiseError,
)

UNREAD = 141  # 128 + SIGPIPE, as of a program that the signal ends
ON_EITHER = ("run", "ladder", "demo")  # the commands that have --device
ON_A_GPU = ("bench", "climb", "tune", "ceilings")  # those that do nothing without one
COMPLETING = "_TILEWISE_COMPLETE"  # set by a shell that asks how a word may continue
DOCTOR = "`tilewise doctor` says what is missing for what."

# The errors of typer for a bad command line have this base, which has no public name.
UsageError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": list(HELP), "max_content_width": 120},
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


COMMANDS = (
    kernels.run,
    kernels.ladder,
    listing.kernels,
    kernels.demo,
    profile.profile,
    watch.watch,
    product.bench,
    climb.climb,
    files.multiply,
    product.explain,
    product.tune,
    warm.warm,
    tiles.tiles,
    tiles.occupancy,
    roofline.roofline,
    roofline.ceilings,
    exercises.exercises,
    exercises.grade,
    machine.doctor,
)
for command in COMMANDS:
    # Given, it is wrapped in the list of commands; typer's own would be cut to a line.
    app.command(short_help=(inspect.getdoc(command) or "").partition("\n\n")[0])(command)


@cache
def _parser() -> Any:
    """Return the parser of command lines. It is kept, for it takes 20 ms to make it."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The arguments, by default those of the process.

    Returns
    -------
    int
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a character it lacks is replaced by "?"
            stream.reconfigure(errors="replace")
    if os.environ.get("COLUMNS", "").strip("0") == "":  # rich would print nothing in no columns
        os.environ.pop("COLUMNS", None)
    with ended_at_once() as interruptible:
        try:
            code = _answer(words, interruptible)
            sys.stdout.flush()
        except BrokenPipeError:  # `tilewise ladder | head`: the reader has ended
            _forget_output()
            return UNREAD
        except OSError as error:  # a full disk
            _forget_output()
            return told(f"can't write to standard output: {error.strerror or error}", BAD)
    return code


def _forget_output() -> None:
    """Send what standard output still holds nowhere: at its end Python would try once more."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _answer(words: Sequence[str], interruptible: Interruptible) -> int:
    """Carry out the command line, or say why it can't be carried out; return the exit code."""
    try:
        with interruptible:
            if words and words[0] in ON_A_GPU and not set(HELP) & set(words):
                require_gpu()
            parser, given = _parser(), spread(words)
            command = parser.commands.get(words[0]) if words else None
            if command is not None and (option := without_value(command.params, given[1:])):
                raise UsageError(f"{option} is given no value")
            code = int(parser(given, prog_name="tilewise", standalone_mode=False) or RIGHT)
            if code == INTERRUPTED:  # the code that typer uses for Ctrl-C
                raise KeyboardInterrupt
            return code
    except UsageError as error:
        commands = [each.__name__ for each in COMMANDS]
        return _fail(error, sentence(error, words, commands), BAD, words, help_of(words, commands))
    except CheckError as error:
        return _fail(error, error.text(), WRONG, words)
    except KernelAssertError as error:
        return _fail(error, str(error), WRONG, words)
    except LimitError as error:
        hint = f"`--limit {error.limit}=MOST` sets another limit, `--no-limits` none."
        has_limit = any("--limit" in each.opts for each in _parser().commands[words[0]].params)
        return _fail(error, str(error), WRONG, words, hint if has_limit else "")
    except ImportError as error:
        return _fail(error, f"{error}", BAD, words, DOCTOR)
    except DeviceUnavailableError as error:
        hint = f"`--device emulator` needs no GPU; {DOCTOR}" if words[0] in ON_EITHER else DOCTOR
        return _fail(error, str(error), BAD, words, hint)
    except SystemExit as error:  # typer and rich end the process if the reader has ended
        if any("-completion" in word for word in words) or COMPLETING in os.environ:
            return int(error.code or RIGHT)
        raise BrokenPipeError from None
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None and error.errno == errno.ENOSPC:
            raise  # for standard output; errors of files name them
        return _fail(error, _of_the_system(error), BAD, words)
    except (TilewiseError, ValueError, TypeError) as error:
        return _fail(error, str(error), BAD, words)
    except (MemoryError, OverflowError) as error:
        return _fail(error, f"too large for this machine: {error}", BAD, words)
    except (KeyboardInterrupt, typer.Abort):
        # Whatever was being imported may be half there: nothing more is imported.
        if _as_json(words):
            print_json({"error": "interrupted", "kind": "KeyboardInterrupt"})
        with suppress(OSError):
            print("tilewise: interrupted", file=sys.stderr)
        return INTERRUPTED


def _of_the_system(error: OSError) -> str:
    """Return what the system refused and for which file, without the number of the error."""
    if error.errno == errno.ENOENT and error.filename is None:
        return "the working directory is gone; change to another one"
    if error.filename is None or not error.strerror:
        return str(error)
    name = error.filename  # a number, of a file that is open
    return f"{name if isinstance(name, int) else os.fsdecode(name)}: {error.strerror}"


def require_gpu() -> None:
    """Raise an error where no GPU can be used: before anything else that may be wrong."""
    from tilewise.devices import get_device

    get_device("gpu")


def _as_json(words: Sequence[str]) -> bool:
    """Return whether standard output is to be one JSON document."""
    if words[:1] not in (["bench"], ["climb"], ["ceilings"]):
        return "--json" in words
    return "--json=-" in words or ("--json", "-") in pairwise(words)


def _fail(
    error: BaseException, message: str, code: int, words: Sequence[str], hint: str = ""
) -> int:
    return failed(error, message, code, as_json=_as_json(words), hint=hint)
