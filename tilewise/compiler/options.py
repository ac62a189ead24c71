"""What a compilation is asked for, checked and as options of NVRTC's command line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)


def check_text(value: object, what: str) -> None:
    """Raise TypeError or ValueError where an argument is no text for NVRTC."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {type(value).__name__}; it takes a string")
    if "\0" in value:
        raise ValueError(f"{what} has a NUL character in it")


def of_macros(defines: Mapping[str, Any]) -> tuple[str, ...]:
    """``-DNAME=VALUE`` of each macro, by name; it raises what compiling with it would."""
    if not isinstance(defines, Mapping):
        raise TypeError(f"defines is {type(defines).__name__}; it takes a mapping")
    options = []
    for macro, given in sorted(defines.items(), key=lambda item: str(item[0])):
        if not isinstance(macro, str) or not _IDENTIFIER.match(macro) or macro == "defined":
            raise ValueError(f"{macro!r} can't be the name of a macro: it is no identifier")
        # NumPy's scalars are no int and no float, but have one in them.
        value = given.item() if hasattr(given, "item") and not hasattr(given, "__len__") else given
        if value is False:
            continue
        if value is True:
            options.append(f"-D{macro}")
        elif isinstance(value, str):
            if "\n" in value or "\0" in value:
                raise ValueError(f"macro {macro} is {value!r}: a macro's value is one line")
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


def folders(path: Path | None, options: Sequence[str]) -> list[Path]:
    """The folders that ``#include`` searches, the source's own first."""
    found = [] if path is None else [Path(path).absolute().parent]
    words = list(options)
    for at, option in enumerate(words):
        if re.match(r"--?(gpu-architecture|arch)\b", option):
            raise ValueError(f"options has {option!r}: the architecture is the argument arch")
        included = re.match(r"(?:-I|--include-path)[= ]?(.*)", option, re.DOTALL)
        if included:
            folder = included[1] or (words[at + 1] if at + 1 < len(words) else ".")
            found.append(Path(folder).absolute())
    return found
