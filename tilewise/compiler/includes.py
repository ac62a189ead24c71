"""The files that a source may read: its includes, which NVRTC is given from memory.

NVRTC opens every file that an include names, and quotes it in its messages. So the text that NVRTC
gets names no file. An ``#include`` of a header that the source may read is rewritten to the name of
a text in memory, every other ``#include`` to an ``#error`` that says why, and ``__has_include`` to
its answer (:mod:`tilewise.compiler.directives`). NVRTC gets no folder to search, but those of
CUDA's headers where the source includes one (:mod:`tilewise.compiler.toolkit`).

Source: ISO C++20 15.6.4 (pasted tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilewise.compiler import headers, pasted, shipped, toolkit
from tilewise.compiler.directives import ODD, defines, rewritten, without_words
from tilewise.compiler.header_search import Search, absolute
from tilewise.compiler.library import Library
from tilewise.compiler.options import defined, has_trigraphs, macros
from tilewise.compiler.toolkit import Toolkit
from tilewise.errors import CompileError


@dataclass(frozen=True)
class Gathered:
    """A source and everything that it includes, as NVRTC gets them.

    Attributes
    ----------
    source : str
        The source with its includes rewritten; its lines are those of the original.
    headers : mapping of str to str
        The headers' texts, rewritten too, by the names that the includes have.
    files : tuple of Path
        The files that were read or looked for, on which the texts depend. Headers of tilewise's own
        are not among them; of CUDA's only those that tell the version.
    is_whole : bool
        Whether nothing is left for NVRTC to read; always True if the source is not trusted.
    is_doubtful : bool
        Whether its names, pasted in some order, make one that asks for files. It has to be compiled
        where no file can be opened.
    toolkit : Toolkit or None
        CUDA's headers, if the source includes one of them.
    environment : tuple or None
        The variables that decided where CUDA's headers were found; None if none were looked for.
    texts : mapping of str to str
        The original texts: the source by its name in messages, and the headers that it may read by
        their paths.
    missing : mapping of str to str
        The headers that an ``#include`` or a ``__has_include`` names and that are not read, by
        name, each with the reason.
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
        """Return what distinguishes the headers in CUDA's folders from other versions."""
        return () if self.toolkit is None else (self.toolkit.version(), headers.version())


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
    """Return a source and everything that it includes.

    Parameters
    ----------
    source : str
        CUDA C++.
    file : str
        The source's name in messages.
    folder : Path or None
        Its own folder, absolute, which it may read.
    include : sequence of Path
        More folders, absolute, that it may read, and that includes search.
    more : sequence of Path
        More folders, absolute, that it may read.
    options : sequence of str
        NVRTC's options, including the caller's macros.
    name : str
        The name of a kernel, in which NVRTC replaces macros.
    is_trusted : bool
        Whether it may read any file. Includes that can't be resolved here are then left to NVRTC.
    check : callable
        A function that is called at each step, and raises if the time is over.
    given : mapping of str to str, optional
        The texts of headers, by their absolute paths, in place of the files' contents.

    Raises
    ------
    LimitError
        If ``check`` does.
    CompileError
        If it is written so that what it reads can't be told, and it is not trusted.
    """
    include = tuple(map(absolute, include))
    # NVRTC itself reads one with CUDA's headers.
    folders = tuple(each for each in include if not toolkit.is_one(each))
    roots = folders
    if folder is not None:
        own = absolute(folder)
        folders = (own, *folders)
        if own != own.parent:  # for a source in the root folder, the whole machine is not its own
            roots = folders
    places = (*roots, *more)
    library = Library(include)
    search = Search(
        file, folders, places, is_trusted, macros(options), library, check=check, given=given or {}
    )
    source = source.replace("\r\n", "\n")
    whole = rewritten(source, folder, search)
    done: dict[Path, str] = {}
    while waiting := search.texts.keys() - done.keys():
        for header in sorted(waiting):
            done[header] = rewritten(search.texts[header], header.parent, search)
    is_doubtful = False
    check()
    texts = {file: source, **{str(name): text for name, text in search.texts.items()}}
    if not is_trusted:
        is_doubtful = _check(texts, search, [*defined(options), name])
        if has_trigraphs(options):
            pasted.check_trigraphs(texts)
    files = set(search.files)
    if is_trusted and not search.is_whole:  # what NVRTC finds then may be one of CUDA's headers
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


def _check(texts: Mapping[str, str], search: Search, given: Sequence[str]) -> bool:
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
        for name, text in plain.items():
            if defines(text, macro):
                raise CompileError(
                    f"{name} defines {macro} anew, which is the name of an include: {ODD}"
                )
    pasted.check_pieces(plain)
    # The names in tilewise's own headers are known; only their macros that paste count.
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
    others = list(map(without_words, others))
    return pasted.can_be_pasted([*others, *given], names)
