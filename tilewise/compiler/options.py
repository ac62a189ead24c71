"""The arguments of a compilation, checked and converted to options of NVRTC."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)

# The options that read and write no file, by NVRTC's documentation, "Supported Compile Options".
# All others, those of later versions of NVRTC too, are refused unless the source is trusted.
_SWITCHES = (
    "device-c|dc|device-w|dw|device-debug|G|generate-line-info|lineinfo|use_fast_math|"
    "extra-device-vectorization|disable-warnings|w|restrict|device-as-default-execution-space|"
    "default-device|device-int128|device-float128|display-error-number|err-no|"
    "no-display-error-number|no-err-no|brief-diagnostics|no-cache|no-source-include|minimal|"
    "fdevice-syntax-only|device-stack-protector|extensible-whole-program|ewp|gen-opt-lto|"
    "modify-stack-limit|device-optimize|version-ident"
)
_VALUED = (
    "relocatable-device-code|rdc|maxrregcount|ftz|prec-sqrt|prec-div|fmad|use_fast_math|std|"
    "builtin-move-forward|builtin-initializer-list|optimization-info|opt-info|diag-error|"
    "diag-suppress|diag-warn|jump-table-density|frandom-seed|Ofast-compile|Ofc|dopt|"
    "device-stack-protector|modify-stack-limit|split-compile|restrict|brief-diagnostics|"
    "version-ident|extensible-whole-program|device-float128|extra-device-vectorization"
)
_PTXAS = (
    r"-v|--verbose|-O[0-4]|(?:--opt-level|-O)[= ][0-4]|--warn-on-[a-z-]+|-warn-[a-z-]+|"
    r"(?:--maxrregcount|-maxrregcount|--allow-expensive-optimizations|-allow-expensive-"
    r"optimizations|--def-load-cache|-dlcm|--def-store-cache|-dscm|--fmad|-fmad|"
    r"--register-usage-level|-regUsageLevel|--disable-optimizer-constants|-disable-optimizer-consts|"
    r"--disable-warnings|-w|--generate-line-info|-lineinfo|--suppress-[a-z-]+)(?:[= ]\w+)?"
)
_ALLOWED = re.compile(
    rf"--?(?:{_SWITCHES})|--?(?:{_VALUED})=[\w+.,-]*|(?:-D|--define-macro=)[A-Za-z_][^\r\n]*|"
    rf"(?:-U|--undefine-macro=)[A-Za-z_]\w*|(?:--ptxas-options|-Xptxas)[= ](?:{_PTXAS})",
    re.ASCII,
)
# After one of these, NVRTC (13.0 and 13.5) compiles all later sources of the process to other code.
# Of the others that are allowed, none was seen to have that effect.
_LASTING = re.compile(r"--?(?:device-debug|G|Ofast-compile|Ofc|optimization-info|opt-info)\b.*")
_FOLDER = re.compile(r"(?:-I|--include-path)[= ]?(.*)", re.DOTALL)
_DEFINE = re.compile(r"(?:-D|--define-macro=)(.*)", re.DOTALL)
_UNDEFINE = re.compile(r"(?:-U|--undefine-macro=)(\w+)")
_MACRO = re.compile(r"(?:-D|--define-macro=)([A-Za-z_]\w*)(?:=(.*))?", re.ASCII)
_OLD = re.compile(r"--?std=(?:c|gnu)\+\+(?:98|03|0x|11|1y|14)")


def check_text(value: object, what: str) -> None:
    """Raise TypeError or ValueError where an argument is no text for NVRTC."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {type(value).__name__}; it takes a string")
    if "\0" in value:
        raise ValueError(f"{what} has a NUL character in it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} has {value[error.start]!r} in it, half of a character (a lone surrogate)"
        ) from None


def check_options(options: Sequence[str], is_trusted: bool) -> None:
    """Raise where an option is not for the caller to give, or reads or writes files.

    Raises
    ------
    TypeError
        If they are no sequence of strings.
    ValueError
        If one is the architecture, or, where the source is not trusted, one that is not known to
        read and write no file.
    """
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise TypeError(f"options is {options!r}; it takes a sequence of strings")
    for option in options:
        check_text(option, "an option")
        if re.match(r"--?(gpu-architecture|arch)\b", option):
            raise ValueError(f"options has {option!r}: the architecture is the argument arch")
        if is_trusted or _ALLOWED.fullmatch(option):
            continue
        advice = (
            "give the folder in include="
            if _FOLDER.match(option)
            else "it reads or writes files, or tilewise does not know it, and such options are "
            "refused. An option's value belongs into the same string, behind ="
        )
        raise ValueError(f"options has {option!r}: {advice}; or trust the source with trusted=True")


def is_known(options: Sequence[str]) -> bool:
    """Return whether all of the options are known to read and write no file, but for includes."""
    return all(_ALLOWED.fullmatch(each) or _FOLDER.match(each) for each in options)


def may_last(options: Sequence[str]) -> bool:
    """Return whether these options may change later compilations of the same process."""
    return not is_known(options) or any(map(_LASTING.match, options))


def has_trigraphs(options: Sequence[str]) -> bool:
    """Return whether the dialect of C++ is one before C++17, which knows trigraphs."""
    return any(map(_OLD.match, options))


def macros(options: Sequence[str]) -> dict[str, str]:
    """Return the macros that options define, and their values."""
    return {m[1]: m[2] or "" for m in map(_MACRO.fullmatch, options) if m is not None}


def defined(options: Sequence[str]) -> list[str]:
    """Return the texts of the macros that options define: ``NAME=VALUE``, or ``NAME(A)=VALUE``."""
    return [match[1] for match in map(_DEFINE.match, options) if match is not None]


def left_defined(options: Sequence[str]) -> list[str]:
    """Return the :func:`defined` macros that no later option undefines."""
    found: list[str] = []
    for option in options:
        if match := _DEFINE.match(option):
            found.append(match[1])
        elif match := _UNDEFINE.match(option):
            found = [each for each in found if re.split(r"[=(]", each)[0] != match[1]]
    return found


def of_macros(defines: Mapping[str, Any]) -> tuple[str, ...]:
    """Return ``-DNAME=VALUE`` for each macro, by name; raise the errors of compiling with it."""
    if not isinstance(defines, Mapping):
        raise TypeError(f"defines is {type(defines).__name__}; it takes a mapping")
    options = []
    for macro, given in sorted(defines.items(), key=lambda item: str(item[0])):
        if not isinstance(macro, str) or not _IDENTIFIER.match(macro) or macro == "defined":
            raise ValueError(f"{macro!r} can't be the name of a macro: it is no identifier")
        value = _plain(given)
        if value is False:
            continue
        if value is True:
            options.append(f"-D{macro}")
        elif isinstance(value, str):
            if re.search(r"[\r\n\0]", value):
                raise ValueError(f"macro {macro} is {value!r}: a macro's value is one line")
            check_text(value, f"macro {macro}")
            options.append(f"-D{macro}={value}")
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"macro {macro} is {value!r}, which C++ has no literal for")
        elif isinstance(value, int | float):
            options.append(f"-D{macro}={value!r}")
        else:
            raise TypeError(
                f"macro {macro} is of type {type(given).__name__}; it takes an int, a float, "
                "a string or a bool"
            )
    return tuple(options)


def not_defined(defines: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of macros that are said not to be defined, which no option of NVRTC's has.

    A source may be refused without one: a header that is not there might define it.
    """
    return tuple(sorted(name for name, given in defines.items() if _plain(given) is False))


def _plain(given: Any) -> Any:
    """Return a macro's value; NumPy's scalars are no int and no float, but have one in them."""
    return given.item() if hasattr(given, "item") and not hasattr(given, "__len__") else given


def folders(options: Sequence[str]) -> list[Path]:
    """Return the folders that a trusted source's options name for ``#include`` to search."""
    found = []
    words = list(options)
    for at, option in enumerate(words):
        if included := _FOLDER.match(option):
            folder = included[1] or (words[at + 1] if at + 1 < len(words) else ".")
            found.append(Path(folder).absolute())
    return found
