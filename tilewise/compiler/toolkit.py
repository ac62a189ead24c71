"""CUDA's own headers: their place, and the parts of them that a source could misuse.

They are read as trusted: NVRTC gets their folders to search, and opens their files itself. A source
that is not trusted must not thereby have it open, or look for, other files. What a header includes
by a literal name can't be changed by a macro of the source's. What can be is found once a version:

- the words of macros by which headers include or ask for a file (``__has_include``), which the
  source might define anew;
- macros that ask for a file, which it might use, and the words in macros that one of these names
  can be put together of (:mod:`tilewise.compiler.pasted`).

Source: ISO C++20 15.2, 15.3 (includes), 15.6.4 (pasted tokens).
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from tilewise.compiler import cache, nvrtc, pasted

INSTALL_HINT = 'pip install "tilewise[headers]"'
USUAL = Path("/usr/local/cuda")
VARIABLES = ("CUDA_HOME", "CUDA_PATH")
# One of each of the parts that NVIDIA's wheels come in.
_PARTS = {
    "nvidia-cuda-runtime": ("cuda_runtime_api.h",),
    "nvidia-cuda-crt": ("crt/host_defines.h",),
    "nvidia-cuda-cccl": ("cccl/cuda/std/version", "cuda/std/version"),
}
# What distinguishes one version of the parts from another.
_TELLING = (
    "cuda_runtime_api.h", "cuda_fp16.hpp", "cooperative_groups.h", "crt/mma.hpp",
    "crt/host_defines.h", "cccl/cuda/std/__cccl/version.h", "cccl/cub/version.cuh",
    "curand_kernel.h",
)  # fmt: skip
_RELEASE = re.compile(rb"#define\s+CUDART_VERSION\s+(\d+)")
_CUDA = re.compile(
    r"(?:cuda|cub|thrust|nv|cooperative_groups|crt)/.+|cooperative_groups\.h|mma\.h|"
    r"cu(?:da\w*|Complex)\.hp*|math_constants\.h"
)

_DIRECTIVE = re.compile(
    rb"\n[ \t]*#[ \t]*(?:(?:include|include_next|import|embed)\b[ \t]*(?P<operand>[^\s<\"][^\n]*)|"
    rb"(?:el)?if\b(?P<condition>[^\n]*)|"
    rb"define[ \t]+(?P<name>\w+)(?P<parameters>\([^)\n]*\))?(?P<body>[^\n]*))"
)
_WORD = re.compile(rb"\w+")
_ASKING = re.compile(rb"__has_(?:include(?:_next)?|embed)\b")
_ASKED = (b"__has_include", b"__has_include_next", b"__has_embed", b"defined")
_PLAIN = re.compile(
    rb'__has_include[ \t]*\([ \t]*(?:<[^>\n]*>|"[^"\n]*")[ \t]*\)|defined[ \t(]*__has_\w+'
)
_NO_CODE = re.compile(rb'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/|//.*')


@dataclass(frozen=True)
class Toolkit:
    """A place of CUDA's headers.

    Attributes
    ----------
    folder : Path
        The folder ``include``.
    origin : str
        How it was found: ``"include="``, ``"the wheels"``, ``"CUDA_HOME"``, ``"CUDA_PATH"`` or
        ``"/usr/local/cuda"``.
    release : tuple of int
        The release, as in ``(13, 0)``.
    lacks : tuple of str
        The wheels whose headers are missing.
    """

    folder: Path
    origin: str
    release: tuple[int, int]
    lacks: tuple[str, ...]

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that NVRTC is to search."""
        return (self.folder, self.folder / "cccl")

    @property
    def telling(self) -> tuple[Path, ...]:
        """Return files that change when the version does."""
        return tuple(self.folder / name for name in _TELLING)

    def version(self) -> str:
        """Return a text that another version at this place does not have."""
        return _version(str(self.folder), cache.stamps(self.telling))

    def find(self, name: str) -> Path | None:
        """Return the file of a header; None where there is none."""
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return None
        files = (folder / name for folder in self.folders)
        return next((file for file in files if file.is_file()), None)

    def misused(self) -> Misused:
        """Return what a source could misuse; it is searched for once for each version."""
        return _misused(str(self.folder), self.version())


@dataclass(frozen=True)
class Misused:
    """The parts of CUDA's headers by which a source could make them look for files elsewhere.

    Attributes
    ----------
    names : frozenset of str
        The words of macros by which headers include or ask for a file. The names of these macros
        are pasted from them.
    asking : frozenset of str
        The macros that ask for a file.
    words : str
        The words of macros that are parts of those, of ``__has_include`` or of its like.
    """

    names: frozenset[str]
    asking: frozenset[str]
    words: str


def environment() -> tuple[str | None, ...]:
    """Return the variables that decide where headers are found."""
    return tuple(map(os.environ.get, VARIABLES))


def find(include: Sequence[Path] = ()) -> Toolkit | None:
    """Return the first place that has all of CUDA's headers; else the first that has some.

    Parameters
    ----------
    include : sequence of Path
        The caller's folders; one with all of the headers comes before all other places.
    """
    some = None
    for folder, origin in _places(include):
        found = _at(folder, origin)
        if found is not None and not found.lacks:
            return found
        if origin != "include=":
            some = some or found
    return some


def is_one(folder: Path) -> bool:
    """Return whether a folder has all of CUDA's headers."""
    found = _at(folder, "include=")
    return found is not None and not found.lacks


def missing(name: str, found: Toolkit | None) -> str:
    """Return why a header of CUDA's is not found, and what brings it; empty for other headers."""
    if name.startswith("curand_"):
        return "pip install nvidia-curand brings it"
    if not _CUDA.fullmatch(name):
        return ""
    if found is None:
        return f"this header of CUDA is not installed; {INSTALL_HINT} brings it"
    if found.lacks:
        return (
            f"the headers of {found.origin} are without {' and '.join(found.lacks)}; "
            f"{INSTALL_HINT} brings it"
        )
    return f"CUDA {found.release[0]}.{found.release[1]} of {found.origin} has no such header"


def _places(include: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    for folder in include:
        yield folder, "include="
    for entry in sys.path:
        yield (
            Path(entry or ".").absolute() / "nvidia" / f"cu{nvrtc.version()[0]}" / "include",
            ("the wheels"),
        )
    for variable in VARIABLES:
        if value := os.environ.get(variable):
            base = Path(value).absolute()
            for folder in (base / "include", *sorted(base.glob("targets/*/include"))):
                yield folder, variable
    yield USUAL / "include", str(USUAL)


def _at(folder: Path, origin: str) -> Toolkit | None:
    """Return the headers of a folder, if they are of the major version that NVRTC is of."""
    stamp = cache.stamps([folder / "cuda_runtime_api.h"])
    release = (0, 0) if stamp[0][1] == -1 else _release(stamp)
    if release[0] != nvrtc.version()[0]:
        return None
    lacks = (
        wheel
        for wheel, files in _PARTS.items()
        if not any((folder / file).is_file() for file in files)
    )
    return Toolkit(folder, origin, release, tuple(lacks))


@lru_cache(maxsize=16)
def _release(stamp: tuple[tuple[str, int, int], ...]) -> tuple[int, int]:
    try:
        found = _RELEASE.search(Path(stamp[0][0]).read_bytes())
    except OSError:
        found = None
    number = int(found[1]) if found else 0
    return number // 1000, number % 1000 // 10


@lru_cache(maxsize=16)
def _version(folder: str, stamps: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for name, _, size in stamps:
        digest.update(f"{Path(name).relative_to(folder).as_posix()} {size}\0".encode())
        if size >= 0:
            digest.update(Path(name).read_bytes())
    return digest.hexdigest()


@lru_cache(maxsize=16)
def _misused(folder: str, version: str) -> Misused:
    key = cache.key(("misused headers", *(each.name for each in fields(Misused)), folder, version))
    entry = cache.load(key)
    if entry is None:
        found = _looked_for(Path(folder))
        entry = {
            "names": sorted(found.names), "asking": sorted(found.asking), "words": found.words,
        }  # fmt: skip
        cache.store(key, entry)
    return Misused(frozenset(entry["names"]), frozenset(entry["asking"]), entry["words"])


def _looked_for(folder: Path) -> Misused:
    """Read all the headers below a folder."""
    defines: list[tuple[bytes, bytes, bytes]] = []
    operands: list[bytes] = []  # what names a file by words that macros replace
    conditions: list[bytes] = []
    for file in _files(folder):
        text = b"\n" + file.read_bytes().replace(b"\r\n", b"\n").replace(b"\\\n", b" ")
        for found in _DIRECTIVE.finditer(text):
            operand, condition, name, parameters, body = found.groups()
            if operand is not None:
                operands.append(_NO_CODE.sub(b" ", operand))
            elif condition is not None:
                conditions.append(condition)
            else:
                defines.append((name, parameters or b"", body))
    asking = set[bytes]()
    pattern: re.Pattern[bytes] | None = _ASKING
    while pattern is not None:
        operands += (each for each in conditions if pattern.search(_PLAIN.sub(b"", each)))
        more = {name for name, _, body in defines if pattern.search(body)} - asking
        operands += (body for name, _, body in defines if name in more)
        asking |= more
        pattern = re.compile(rb"\b(?:%s)\b" % b"|".join(sorted(more))) if more else None
    names = _words_in(operands, defines) - set(_ASKED)
    found_words = set[str]()
    every = frozenset(map(bytes.decode, asking))
    parts = pasted.parts_of(every) - every
    for _, parameters, body in defines:
        code = _NO_CODE.sub(b" ", body) if b'"' in body or b"/" in body else body
        found_words |= parts.intersection(
            word.decode() for word in set(_WORD.findall(code)) - set(_WORD.findall(parameters))
        )
    return Misused(frozenset(map(bytes.decode, names)), every, " ".join(sorted(found_words)))


def _words_in(texts: Sequence[bytes], defines: Sequence[tuple[bytes, bytes, bytes]]) -> set[bytes]:
    """Return the words of texts, and of the macros that they have, and so on."""
    bodies: dict[bytes, list[bytes]] = {}
    for name, _, body in defines:
        bodies.setdefault(name, []).append(body)
    names, new = set[bytes](), list(texts)
    while new:
        more = {word for body in new for word in _WORD.findall(body)} - names
        new = [body for name in more for body in bodies.get(name, ())]
        names |= more
    return names


def _files(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        for name in names:
            yield Path(place, name)
