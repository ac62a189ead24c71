"""What a source may read: its includes, which NVRTC is given from memory.

NVRTC opens every file that an include names, and quotes it in its messages. So the text that NVRTC
gets names no file. An ``#include`` of a header that the source may read is rewritten to the name of
a text in memory, every other ``#include`` to an ``#error`` that says why, and ``__has_include`` to
its answer. NVRTC gets no folder to search, but those of CUDA's headers where the source includes
one (:mod:`tilewise.compiler.toolkit`).

Directives are found without telling what a comment, a string or a condition is: whatever looks like
a directive counts as one if it stands first on a line, or behind the end of a comment. Where that
is wrong, it stands in a comment, in a string or in text that a condition leaves out, and rewriting
it changes nothing that is executed.

Sources: ISO C++20 5.2 (phases of translation), 15.2, 15.3 (includes), 15.6.4 (pasted tokens).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tilewise.compiler import headers, pasted, shipped, toolkit
from tilewise.compiler.library import Library
from tilewise.compiler.options import defined, has_trigraphs, macros
from tilewise.compiler.toolkit import Toolkit
from tilewise.errors import CompileError

MOST_BYTES = 16 << 20
"""The size of the largest source, and of the most headers that one source includes together."""
MOST_FILES = 1000
"""The number of the most headers that one source includes."""

_WS = r"[ \t\v\f\r]"
_NAME = r'(?:"(?P<quoted>[^"\n]*)"|<(?P<angled>[^>\n]*)>)'
_WORDS = r"include_next|include|import|embed"
_INCLUDE = re.compile(
    rf"(?:(?:^|\*/){_WS}*+(?:\#|%:|\?\?=)|\*/){_WS}*+(?P<word>{_WORDS})(?!\w)"
    rf"(?P<operand>{_WS}*+(?:{_NAME}|(?P<macro>[A-Za-z_]\w*)))?",
    re.MULTILINE | re.ASCII,
)
# In C++20, import names a header too, where it is the first word of a line.
_IMPORT = re.compile(
    rf"(?:^|\*/){_WS}*+(?:export{_WS}++)?(?P<word>import)(?!\w)", re.MULTILINE | re.ASCII
)
_HAS = re.compile(
    rf"(?P<asked>(?<!\w)(?:defined{_WS}*+\(?|(?:el)?ifn?def(?!\w)){_WS}*+)?"
    r"(?P<word>__has_include_next|__has_include|__has_embed)(?!\w)"
    rf"(?P<operand>{_WS}*+\({_WS}*+{_NAME}{_WS}*+\))?",
    re.ASCII,
)
_OUTSIDE = (
    "an include outside the folder of the source and the folders of include= is not read; name its "
    "folder in include=, or trust the source with trusted=True"
)
_ODD = (
    'only a plain #include "name" or <name> is read of a source that is not trusted with '
    "trusted=True"
)
_ODD_PATH = "a header whose path has a quotation mark or a new line is not read"
_NOWHERE = "there is no such header in the folder of the source; name its folder in include="
_UNANSWERED = "has_include_takes_a_plain_name_where_the_source_is_not_trusted"


@dataclass(frozen=True)
class Gathered:
    """A source and all that it includes, as NVRTC gets them.

    Attributes
    ----------
    source : str
        With its includes rewritten; its lines are those of the original.
    headers : mapping of str to str
        The headers' texts, rewritten too, by the names that the includes have.
    files : tuple of Path
        All the files that were read or looked for: what the texts depend on. Headers of tilewise's
        own are not among them; of CUDA's, those that tell the version.
    is_whole : bool
        Whether nothing is left for NVRTC to read; always, where the source is not trusted.
    is_doubtful : bool
        Whether names that it has, pasted in some order, are one that asks for files. It is to be
        compiled where no file can be opened.
    toolkit : Toolkit or None
        CUDA's headers, if the source includes one of them.
    environment : tuple or None
        The variables that decided where those were found; None where none were looked for.
    texts : mapping of str to str
        The source by what messages call it, and the headers that it may read by their paths, as
        they were.
    missing : mapping of str to str
        Headers that are included or asked for and are not read, by their names, and why.
    """

    source: str
    headers: Mapping[str, str]
    files: tuple[Path, ...]
    is_whole: bool
    is_doubtful: bool = False
    toolkit: Toolkit | None = None
    environment: tuple[str | None, ...] | None = None
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    missing: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that NVRTC is to search, and may read."""
        return () if self.toolkit is None else (headers.FOLDER, *self.toolkit.folders)

    def version(self) -> tuple[str, ...]:
        """What tells the headers in those folders from others."""
        return () if self.toolkit is None else (self.toolkit.version(), headers.version())


@dataclass
class _Search:
    """Where includes may lead, and where they led."""

    file: str
    folders: tuple[Path, ...]
    roots: tuple[Path, ...]
    is_trusted: bool
    macros: Mapping[str, str]
    library: Library = field(default_factory=Library)
    is_whole: bool = True
    size: int = 0
    texts: dict[Path, str] = field(default_factory=dict)
    files: dict[Path, None] = field(default_factory=dict)
    by_macro: set[str] = field(default_factory=set)
    answers: dict[tuple[str, Path | None], tuple[Path | None, str]] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None

    def find(self, name: str, folder: Path | None) -> tuple[Path | None, str]:
        """The file that an include means, or None, and why it is not read.

        Where a trusted source's is merely not there, there is no reason: NVRTC may find it.
        """
        self.check()
        asked = (name, folder)
        if asked not in self.answers:
            found, reason = self._find(name, folder)
            if found is None and not reason:
                found, reason = self.library.find(name)
            if found is None and not reason and not self.is_trusted:
                reason = _NOWHERE
            self.answers[asked] = found, reason
        return self.answers[asked]

    def missing(self) -> dict[str, str]:
        """Headers that are read nowhere, by their names, and why."""
        found = {name for (name, _), (file, _) in self.answers.items() if file is not None}
        return {
            name: reason or _NOWHERE
            for (name, _), (_, reason) in self.answers.items()
            if name not in found
        }

    @cached_property
    def real_roots(self) -> list[Path]:
        """The folders that may be read, with all links followed."""
        return [root.resolve() for root in self.roots]

    def _find(self, name: str, folder: Path | None) -> tuple[Path | None, str]:
        reason = ""
        places = dict.fromkeys((*(() if folder is None else (folder,)), *self.folders))
        for place in (Path("/"),) if Path(name).is_absolute() else places:
            file = _plain(place / name)
            if not self._is_inside(file, self.roots):
                reason = _OUTSIDE
                continue
            if file in self.texts:
                return file, ""
            self.files[file] = None
            try:
                # Of a link, what it leads to counts.
                if not self._is_inside(file.resolve(), self.real_roots):
                    reason = _OUTSIDE
                    continue
                text = self.given.get(str(file)) or read(file, MOST_BYTES - self.size)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, RuntimeError) as error:
                why = getattr(error, "strerror", "") or error
                return None, " ".join(f"this header is not read: {why}".split())
            if '"' in str(file) or "\n" in str(file):
                return None, _ODD_PATH
            if len(self.texts) >= MOST_FILES:
                return None, f"no more than {MOST_FILES:,} headers are read"
            self.size += len(text.encode())
            self.texts[file] = text
            return file, ""
        return None, reason

    def _is_inside(self, file: Path, roots: Sequence[Path]) -> bool:
        return self.is_trusted or any(file.is_relative_to(root) for root in roots)


def _plain(path: Path) -> Path:
    """An absolute path with no ``..`` in it; no file is looked at."""
    return Path(os.path.normpath(path.absolute()))


def read(file: Path, most: int = MOST_BYTES) -> str:
    """The text of a regular file, its lines ending in ``\\n``.

    Of a device, a pipe or a file of the system's, whose size is none, nothing is read.

    Raises
    ------
    FileNotFoundError
        If there is none, or it is a folder.
    OSError
        If it can't be read.
    ValueError
        If it is no regular file, no text, or larger than ``most`` bytes.
    """
    if stat.S_ISDIR(file.stat().st_mode):
        raise FileNotFoundError(f"{file} is a folder")
    # It may have become a pipe since: that must not wait for a writer.
    number = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(number, "rb") as opened:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{file} is no regular file")
        if status.st_size > most:
            raise ValueError(f"{file} has {status.st_size:,} bytes; at most {most:,} are read")
        data = opened.read(status.st_size)
    try:
        text = data.decode("utf-8-sig")  # some editors begin a file with a mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is no CUDA C++ source: it is not UTF-8 text ({error})") from None
    if "\0" in text:
        raise ValueError(f"{file} has a NUL character in it")
    return text.replace("\r\n", "\n")


def gather(
    source: str,
    file: str,
    folder: Path | None,
    include: Sequence[Path] = (),
    *,
    more: Sequence[Path] = (),
    options: Sequence[str] = (),
    name: str = "",
    is_trusted: bool = False,
    check: Callable[[], None] = lambda: None,
    given: Mapping[str, str] | None = None,
) -> Gathered:
    """A source and all that it includes.

    Parameters
    ----------
    source : str
        CUDA C++.
    file : str
        What messages call it.
    folder : Path or None
        Its own folder, absolute, which it may read.
    include : sequence of Path
        More folders, absolute, that it may read, and that includes search.
    more : sequence of Path
        More folders, absolute, that it may read.
    options : sequence of str
        NVRTC's, the caller's macros among them.
    name : str
        The name of a kernel, in which NVRTC replaces macros.
    is_trusted : bool
        Whether it may read any file. Then what can't be told here is left to NVRTC.
    check : callable
        Called at each step; it raises where the time is over.
    given : mapping of str to str, optional
        Texts of headers, by their absolute paths, in place of what the files have.

    Raises
    ------
    LimitError
        If ``check`` does.
    CompileError
        If it is written so that what it reads can't be told, and it is not trusted.
    """
    include = tuple(map(_plain, include))
    # NVRTC itself reads one with CUDA's headers.
    folders = tuple(each for each in include if not toolkit.is_one(each))
    roots = folders
    if folder is not None:
        own = _plain(folder)
        folders = (own, *folders)
        if own != own.parent:  # of a source in the root folder, the whole machine is not its own
            roots = folders
    places = (*roots, *more)
    library = Library(include)
    search = _Search(
        file, folders, places, is_trusted, macros(options), library, check=check, given=given or {}
    )
    source = source.replace("\r\n", "\n")
    whole = _rewritten(source, folder, search)
    done: dict[Path, str] = {}
    while waiting := search.texts.keys() - done.keys():
        for header in sorted(waiting):
            done[header] = _rewritten(search.texts[header], header.parent, search)
    is_doubtful = False
    check()
    texts = {file: source, **{str(name): text for name, text in search.texts.items()}}
    if not is_trusted:
        is_doubtful = _check(texts, search, [*defined(options), name])
        if has_trigraphs(options):
            pasted.check_trigraphs(texts)
    files = set(search.files)
    if is_trusted and not search.is_whole:  # what NVRTC finds then may be one of CUDA's
        library.uses_toolkit = True
    if library.used is not None:
        files.update(library.used.telling)
    named = headers.implicit()
    if done or library.ours:
        rest = sorted({**done, **library.ours}.items())
        named = {**named, **{str(header): text for header, text in rest}}
    return Gathered(
        whole, named, tuple(sorted(files)), search.is_whole, is_doubtful, library.used,
        library.environment, texts, search.missing(),
    )  # fmt: skip


def _rewritten(text: str, folder: Path | None, search: _Search) -> str:
    """``text`` with every include from memory; lines stay lines."""
    # Lines that a backslash joins are one; where they were joined is known, so that a change of
    # the joined text is one of the text itself.
    joins: list[int] = []
    parts = text.split("\\\n")
    joined = "".join(parts)
    at = 0
    for part in parts[:-1]:
        at += len(part)
        joins.append(at)
    out, begin, next_join = [], 0, 0
    search.check()
    for start, end, new in sorted(_changes(joined, folder, search)):
        if start < begin:
            continue  # a change before it has its place too
        for stop, is_kept in ((start, True), (end, False)):
            while next_join < len(joins) and joins[next_join] < stop:
                if is_kept:
                    out.append(joined[begin : joins[next_join]])
                    begin = joins[next_join]
                out.append("\\\n")
                next_join += 1
            if is_kept:
                out.append(joined[begin:stop])
        out.append(new)
        begin = end
    for join in joins[next_join:]:
        out += (joined[begin:join], "\\\n")
        begin = join
    return "".join((*out, joined[begin:]))


def _changes(text: str, folder: Path | None, search: _Search) -> Iterator[tuple[int, int, str]]:
    """Where ``text`` names files: first place, last place and what is to stand there."""
    for match in _INCLUDE.finditer(text):
        name, places = match["quoted"], folder
        if match["angled"] is not None:
            name, places = match["angled"], None
        elif match["macro"] in search.macros:
            search.by_macro.add(match["macro"])
            value = re.fullmatch(_NAME, search.macros[match["macro"]])
            if value is not None:
                name = value["quoted"] if value["angled"] is None else value["angled"]
                places = folder if value["angled"] is None else None
        if name is None or match["word"] != "include":
            if search.is_trusted:
                search.is_whole = False
            else:
                yield (*match.span("word"), f"error {_ODD}:")
            continue
        found, reason = search.find(name, places)
        if found is not None:
            yield (*match.span("operand"), f' "{found}"')
        elif reason and search.is_trusted and name not in search.library.lacks:
            search.is_whole = False
        elif reason:
            yield (*match.span("word"), f"error {reason}:")
    for match in () if search.is_trusted else _IMPORT.finditer(text):
        yield (*match.span("word"), "import_is_not_read")
    for match in _HAS.finditer(text):
        start, end = match.span("word")
        if match["asked"]:
            yield start, end, "__FILE__"  # which is defined, as this is
        elif match["operand"] is not None and match["word"] == "__has_include":
            name = match["quoted"] if match["angled"] is None else match["angled"]
            found, _ = search.find(name, folder if match["angled"] is None else None)
            yield start, match.end("operand"), f" {int(found is not None)} "
        elif search.is_trusted:
            search.is_whole = False
        else:
            yield start, end, _UNANSWERED


def _check(texts: Mapping[str, str], search: _Search, given: Sequence[str]) -> bool:
    """Raise CompileError where an include's name may be another than it seems.

    ``given`` are the macros, and last the name, that come beside the texts, which
    :func:`tilewise.compiler.pasted.check_given` has seen.

    Returns
    -------
    bool
        Whether it is only possible, and not likely, that it asks for files: :class:`Gathered`.
    """
    plain = {name: text.replace("\\\n", "") for name, text in texts.items()}
    for macro in search.by_macro:
        again = re.compile(rf"(?:\b(?:define|undef)|\*/){_WS}*+{macro}(?!\w)", re.ASCII)
        for name, text in plain.items():
            if again.search(text):
                raise CompileError(
                    f"{name} defines {macro} anew, which is the name of an include: {_ODD}"
                )
    pasted.check_pieces(plain)
    # What stands in tilewise's own headers is known: of them, macros that paste count alone.
    others = [
        text
        for name, text in plain.items()
        if not Path(name).is_relative_to(shipped.FOLDER) or name == search.file
    ]
    names: Iterable[str] = ()
    if search.library.uses_toolkit:
        *given_macros, _name = given
        if search.library.is_misused([*plain.values(), *given], given_macros):
            return True
        names = search.library.misused.asking
        others.append(search.library.misused.words)
    elif not any(map(pasted.pastes, (*plain.values(), *given))):
        return False
    # The words of the includes themselves, which are directives, are no part of a name.
    others = [_INCLUDE.sub(lambda m: m[0].replace(m["word"], " ", 1), text) for text in others]
    return pasted.can_be_pasted([*others, *given], names)
