"""What NVRTC says of a kernel's name, and of what it does not take, in words for a reader."""

from __future__ import annotations

import re
import unicodedata

# NVRTC reads the name that was asked for in a file of its own, and says twice that it is wrong.
_OF_THE_NAME = re.compile(
    r"^__nv_name_map:\d+: error: (?P<why>[^\n]*)\n(?:[ ]+[^\n]*\n|[ ]*\n)*", re.MULTILINE
)
_AGAIN = "Error in parsing name expression"
_COUNT = re.compile(r"^\d+ errors? detected in the compilation of [^\n]*\n?", re.MULTILINE)
_NOTES = (
    (
        re.compile(r"error: (?:texture|surface) is not a template|\"?(?:texture|surface)<"),
        "CUDA has no texture and surface references since version 12, and the emulator has no "
        "texture and surface objects; pass an array",
    ),
    (
        re.compile(r"error: device-side kernel launch could not be processed"),
        "a kernel can't launch another one here (dynamic parallelism); launch them one after "
        "another",
    ),
)
_UNRECOGNIZED = re.compile(r"error: unrecognized token\n(?P<line>[^\n]*)\n(?P<before> *)\^")


def explained(text: str, name: str) -> str:
    """Return NVRTC's errors, ``file:line: error: ...``, in words for who asked for ``name``.

    An error of the name itself is said of the name, not of the file in which NVRTC reads it, and
    notes say what is possible in place of what is not.
    """

    def of_the_name(found: re.Match[str]) -> str:
        why = found["why"]
        return "" if why.startswith(_AGAIN) else f"error in the name {name!r}: {why}\n"

    plain = _OF_THE_NAME.sub(of_the_name, f"{text}\n")
    if plain != f"{text}\n":
        plain = _COUNT.sub("", plain)
    notes = [note for pattern, note in _NOTES if pattern.search(plain)]
    if note := _of_character(plain):
        notes.append(note)
    return "\n".join((plain.strip("\n"), *(f"note: {note}" for note in notes)))


def _of_character(text: str) -> str:
    """Return a note on the first character beyond ASCII that NVRTC refuses, or an empty string."""
    for found in _UNRECOGNIZED.finditer(text):
        line, column = found["line"], len(found["before"])
        place = len(line.encode()[:column].decode(errors="ignore"))  # NVRTC's columns are bytes
        if line[place : place + 1].isascii():  # or the line ends before
            continue
        for word in re.finditer(r"\w+", line):
            if word.start() <= place < word.end():
                return (
                    f"NVRTC takes only ASCII characters in names: rename {word[0]}; comments and "
                    "strings may have others"
                )
        name = unicodedata.name(line[place], "a character without a name")
        return (
            f"U+{ord(line[place]):04X}, {name}, is allowed only in comments and strings; was the "
            "line copied from a page or a document?"
        )
    return ""
