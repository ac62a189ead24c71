"""A command line that can't be understood, in words of our own.

typer's own messages change from version to version, and speak of its values and inputs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

HELP = ("-h", "--help")
NUMBERS = {"int": "an integer", "integer": "an integer", "float": "a number", "number": "a number"}
"""The names of types in typer's messages, by version, and their plain names."""


_ARGUMENTS = (
    (re.compile(r"\btrusted=True\b"), "--trusted"),
    (re.compile(r"\bresume=True\b"), "--resume"),
    (re.compile(r"\bforce=True\b"), "--force"),
    (re.compile(r"\bin include=(?=[\s,;]|$)"), "with --include"),
    (
        re.compile(r"\. A kernel of any other signature is launched by kernel\.launch.*?`$", re.M),
        "",
    ),
    (re.compile(r"\bof include=(?=[\s,;]|$)"), "of --include"),
    (re.compile(r"\(defines=\{'(\w+)': False\}\)"), r"(-U \1)"),
    (re.compile(r"\bcooperative=True\b"), "--cooperative"),
    (re.compile(r"\bshared=BYTES\b"), "--shared BYTES"),
    (re.compile(r"\bmax_gpu_memory\b"), "--max-gpu-memory"),
    (re.compile(r"^(memory|rtol|atol)(?= is )"), r"--\1"),
)
"""The advice in messages to callers of Python, and the same for the command line."""


def with_options(message: str) -> str:
    """Name the command line's options in a message, in the place of Python's arguments."""
    for argument, option in _ARGUMENTS:
        message = argument.sub(option, message)
    return message


def sentence(error: Any, words: Sequence[str], commands: Sequence[str]) -> str:
    """Return a sentence on what is wrong with ``words``, and what would be right.

    Parameters
    ----------
    error : Exception
        The error that typer raised.
    words : sequence of str
        The words of the command line.
    commands : sequence of str
        The names of the commands.
    """
    text = getattr(error, "format_message", error.__str__)()
    kind, command = type(error).__name__, words[0] if words else ""
    if kind == "NoSuchOption":
        options = [name for each in _parameters(error) for name in each.opts]
        whose = f" of `tilewise {command}`" if command in commands else ""
        later = next((word for word in words if word in commands), "")
        if later and not whose:
            return (
                f"there is no option {error.option_name} before a command; those of a command come "
                f"after it, as in `tilewise {later} {error.option_name}`"
            )
        return f"there is no option {error.option_name}{whose}{meant(error.option_name, options)}"
    if text.startswith("No such command"):
        quoted = re.search(r"No such command ['\"](.*?)['\"]", text)
        command = quoted[1] if quoted else command
        return f"there is no command {command!r}{meant(command, commands)}"
    if kind == "MissingParameter":
        return _missing(error)
    if kind == "BadParameter":
        return _bad_value(error, text, words)
    if kind == "BadOptionUsage":
        flag = re.search("requires an argument", text) is None
        return f"{error.option_name} {'takes no value' if flag else 'is given no value'}"
    # Words of click, which typer contains: "argument(s)" or "arguments" by version.
    extra = re.search(r"unexpected extra argument(?:s|\(s\))? \((.*)\)", text)
    if extra:
        return f"{extra[1]!r} is more than `tilewise {command}` takes"
    return str(text)


def without_value(parameters: Sequence[Any], words: Sequence[str]) -> str:
    """Return the first option that takes a value, and is given none; empty if there is none.

    The parser would take the next option for the value. A value that begins as an option does is
    given as ``--out=--name``.

    Parameters
    ----------
    parameters : sequence
        The parameters of the command, as typer has them, without the option that shows help.
    words : sequence of str
        The words of the command line.
    """
    options = {name: not each.is_flag for each in parameters if each.param_type_name == "option"
               for name in (*each.opts, *each.secondary_opts)}  # fmt: skip
    options |= dict.fromkeys(HELP, False)
    words = words[: words.index("--")] if "--" in words else words
    value_of = ""
    for word in words:
        if value_of and word.partition("=")[0] in options:
            return value_of
        value_of = word if not value_of and options.get(word) else ""
    return value_of


def help_of(words: Sequence[str], commands: Sequence[str]) -> str:
    """Return where to read what would be right: the help of the command, if there is one."""
    if words and words[0] in commands:
        return f"`tilewise {words[0]} --help` says what it takes."
    return "`tilewise --help` lists the commands, `tilewise COMMAND --help` its options."


def meant(given: str, known: Sequence[str]) -> str:
    """Return ``; did you mean ...?``, or an empty string if nothing is similar."""
    names = {each.lstrip("-"): each for each in known}  # hyphens make options look alike
    found = get_close_matches(given.lstrip("-"), list(names), 3)
    return f"; did you mean {' or '.join(names[each] for each in found)}?" if found else ""


def _bad_value(error: Any, text: str, words: Sequence[str]) -> str:
    name, value = _name(error), _given(error, words)
    is_what = name if value is None else f"{name} is {value!r}"
    choices = re.search(r"not one of (.*?)\.?$", text)
    if choices:
        known = re.findall(r"'([^']*)'", choices[1])
        return f"{is_what}; it takes one of {', '.join(known)}"
    number = re.search(r"\ba valid (\w+)", text)
    if number and number[1] in NUMBERS:
        return f"{is_what}; it takes {NUMBERS[number[1]]}"
    return f"{name}: {text.rpartition(': ')[2]}"


def _missing(error: Any) -> str:
    """Return a sentence that names every missing parameter; the parser stops at the first one.

    The parser handles given parameters before others, and so has stored a value for each of them.
    """
    stored = getattr(getattr(error, "ctx", None), "params", {})
    missing = [each for each in _parameters(error) if each.required and each.name not in stored]
    if len(missing) < 2:
        return f"{_name(error)} is missing{_help(error)}"
    names = [_label(each) + _help_in_brackets(each) for each in missing]
    return f"{', '.join(names[:-1])} and {names[-1]} are missing"


def _help_in_brackets(parameter: Any) -> str:
    """Return the first clause of a parameter's help text in brackets; empty if it has none."""
    text = str(getattr(parameter, "help", None) or "").partition(";")[0].rstrip(".")
    return f" ({text[0].lower()}{text[1:]})" if text else ""


def _parameters(error: Any) -> Sequence[Any]:
    context = getattr(error, "ctx", None)
    return () if context is None else context.command.params


def _name(error: Any) -> str:
    """Return an option's name, or an argument's as help shows it."""
    parameter = getattr(error, "param", None)
    if parameter is None:
        return str(getattr(error, "param_hint", None) or "a value").strip("'")
    return _label(parameter)


def _label(parameter: Any) -> str:
    """Return a parameter's name as a user types it: ``-n``, or ``A.npy`` of an argument."""
    if parameter.param_type_name == "option":
        return str(parameter.opts[-1])
    return str(parameter.metavar or parameter.name)


def _help(error: Any) -> str:
    text = getattr(getattr(error, "param", None), "help", None) or ""
    return f": {text[0].lower()}{text[1:].rstrip('.')}" if text else ""


def _given(error: Any, words: Sequence[str]) -> str | None:
    """Return the words' value of the parameter, the last of several; None if it is ambiguous."""
    found = None
    for option in getattr(getattr(error, "param", None), "opts", ()):
        for place, word in enumerate(words):
            if word == option and place + 1 < len(words):
                found = words[place + 1]
            elif word.startswith(f"{option}=") and option.startswith("--"):
                found = word.partition("=")[2]
            elif word.startswith(option) and word != option and not option.startswith("--"):
                found = word[len(option) :]
    return found
