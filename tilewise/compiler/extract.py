"""Extract the part of a source that one kernel needs, from a file with host code in it.

A file is first compiled as it is. If that fails, the part of it that the kernel needs is compiled
instead: the text of the file and of its own headers, with spaces for the rest, so that line numbers
stay the same. A declaration that is included only because its name happens to be used, and that
does not compile, is left out as well; a declaration whose absence causes an error is put back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from tilewise.compiler import left_out, nvrtc, symbols
from tilewise.compiler.includes import Gathered
from tilewise.compiler.job import Job
from tilewise.compiler.mangled import demangle
from tilewise.compiler.options import defined
from tilewise.compiler.source import part as parts
from tilewise.compiler.source.declarations import Declaration
from tilewise.compiler.source.instances import instances, split_list
from tilewise.compiler.source.kernels import KernelDeclaration, alike
from tilewise.compiler.source.part import Files, Part
from tilewise.errors import CompileError, ParserMissingError

PART = 3
"""The version of the rules for what is left out; results of another version are compiled anew."""
_MOST_ROUNDS = 24
_ERROR = re.compile(r"^(\S.*?)\((\d+)\): (?:catastrophic )?error[^:]*: (.*)$", re.MULTILINE)
_INCLUDED = re.compile(r'\s*#\s*include\s*"([^"]*)"')
_CAUSE = re.compile(r"\bat line (\d+)(?: of (\S+))?")
_QUOTED = re.compile(r'"(?:[^"\n]*?::)?~?([A-Za-z_]\w*)[^"\n]*"')


@dataclass(frozen=True)
class Wanted:
    """The parts of a kernel's name, such as ``"space::kernel<64, float>(float*, int)"``.

    Attributes
    ----------
    path : str
        The name alone.
    arguments : str
        The template's arguments with their brackets; empty if none are given.
    types : tuple of str or None
        The types of its parameters; None if they are not given.
    """

    path: str
    arguments: str
    types: tuple[str, ...] | None

    @property
    def expression(self) -> str:
        """The name expression for NVRTC."""
        return self.path + self.arguments


@dataclass(frozen=True)
class Extracted:
    """A kernel's part of a source, compiled, with the remarks on what was left out."""

    output: nvrtc.Output
    symbol: str
    gathered: Gathered
    name: str
    remarks: tuple[str, ...] = ()


def wanted(name: str) -> Wanted:
    """Take a kernel's name apart."""
    path = re.match(r"\s*(?:::)?\s*((?:\w+\s*::\s*)*\w+)\s*", name)
    if path is None:
        return Wanted(name, "", None)
    rest = name[path.end() :].strip()
    types: tuple[str, ...] | None = None
    if rest.endswith(")") and (rest.startswith("(") or ">" in rest):
        opening = _opening(rest)
        if opening == 0 or rest[:opening].rstrip().endswith(">"):
            types = tuple(
                alike(each) for each in split_list(rest[opening + 1 : -1]) if each != "void"
            )
            rest = rest[:opening].rstrip()
    return Wanted(re.sub(r"\s+", "", path[1]), rest, types)


def _opening(text: str) -> int:
    """Return the place of the bracket that the last one closes."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            return at
    return 0


def own_texts(job: Job, gathered: Gathered, more: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return the source and those of its headers that lie in its folder, or are in ``more``."""
    folder = job.folder
    return {
        job.file: job.request.source,
        **{
            name: text
            for name, text in gathered.texts.items()
            if name == job.file
            or name in more
            or (folder is not None and Path(name).is_relative_to(folder))
        },
    }


def matching(files: Files, asked: Wanted) -> list[KernelDeclaration]:
    """Return the kernels of a name: declarations, specializations and overloads."""
    exact = [each for each in files.kernels if each.name == asked.path]
    found = exact or [each for each in files.kernels if each.name.endswith(f"::{asked.path}")]
    if not found:  # a symbol
        plain = demangle(asked.path).partition("<")[0]
        found = [each for each in files.kernels if each.name == plain]
    if asked.types is not None:
        found = [each for each in found if each.types == asked.types]
    return found


def listed(files: Files) -> list[str]:
    """Return the names of the kernels, for a reader, in the order of the texts."""
    return list(dict.fromkeys(f"{k.name}<...>" if k.template else k.name for k in files.kernels))


def extract(
    job: Job, gathered: Gathered, message: Callable[[str, Gathered], str]
) -> Extracted | None:
    """Compile the part of a source that a kernel needs.

    Parameters
    ----------
    job : Job
    gathered : Gathered
        The whole source, which does not compile, or in which NVRTC does not find the kernel.
    message : callable
        A function that makes a readable message from NVRTC's log.

    Returns
    -------
    Extracted or None
        The part; None if the source consists of what the kernel needs, or has no such kernel.

    Raises
    ------
    CompileError
        If the part does not compile, or the source has other kernels than the one asked for.
    """
    more: frozenset[str] = frozenset()
    while True:
        try:
            files = parts.read(own_texts(job, gathered, more))
        except ParserMissingError:
            return None
        asked = wanted(job.request.name)
        kernels = matching(files, asked)
        if not kernels:
            if files.kernels:
                raise CompileError(no_such_kernel(job.request.name, job.file, files))
            return None
        search = _Search(job, gathered, files, kernels, asked)
        found = search.run()
        headers = search.blamed_headers() - more
        if found is not None or not headers:
            break
        more |= headers
    if found is None:
        if search.is_whole:
            return None
        raise CompileError(search.explained(message))
    return found


def no_such_kernel(name: str, file: str, files: Files) -> str:
    """Say which kernels there are in place of one that is not."""
    there = listed(files)
    asked = wanted(name)
    text = f"{file} has no kernel called {name!r}; it has {', '.join(there)}"
    same = [k for k in files.kernels if asked.path in (k.name, k.base)]
    if asked.types is not None and any(k.name == asked.path for k in same):
        overloads = ", ".join(dict.fromkeys(k.signature for k in same))
        return f"{file} has no kernel {name}; it has {overloads}"
    template = next((k.template for k in same if k.template), ())
    if template and not asked.arguments:
        return (
            f"{text}. {asked.path} is a template, <{', '.join(map(str, template))}>: ask for an "
            f"instance, such as {_example(asked.path, files)}"
        )
    near = nearest(asked.path, files.kernels)
    return f"{text}. Did you mean {near}?" if near else text


def nearest(path: str, kernels: Sequence[KernelDeclaration]) -> str:
    """Return the kernel's name that is nearest to a given one; empty if none is near."""
    names = {k.base: k.name for k in kernels} | {k.name: k.name for k in kernels}
    near = get_close_matches(path, names, 1) or get_close_matches(
        path.rpartition("::")[2], names, 1
    )
    return names[near[0]] if near else ""


def _example(path: str, files: Files) -> str:
    """Return an instance of a template, if possible one from the source."""
    there = (name for found in instances(files).values() for name in found)
    dots = f"{path}<...> with arguments in the place of the dots"
    return next((n for n in there if n.partition("<")[0].endswith(path)), dots)


class _Search:
    """A search for what to leave out of a source, by compiling what is left."""

    def __init__(
        self,
        job: Job,
        gathered: Gathered,
        files: Files,
        kernels: list[KernelDeclaration],
        asked: Wanted,
    ) -> None:
        self.job, self.gathered, self.files, self.asked = job, gathered, files, asked
        self.kernels = kernels
        words = parts.words_of(job.request.name)
        for macro in defined(job.options):
            words |= parts.words_of(macro)
        self.part = Part(files, kernels, words, left_out.refused(gathered))
        own = {kernel.declaration for kernel in kernels}
        names = {kernel.base for kernel in kernels}
        self.part.left_out |= {
            each for each in files.declarations
            if each not in own and each.kind == "function" and not names.isdisjoint(each.names)
            and (each.is_kernel or not each.is_device) and not self._is_of_a_type(each)
        }  # fmt: skip
        self._fixed = frozenset(self.part.left_out)
        self.output = nvrtc.Output("", ok=False)
        self.now = gathered
        self.is_whole = False

    @staticmethod
    def _is_of_a_type(declaration: Declaration) -> bool:
        return bool(declaration.with_names)

    def run(self) -> Extracted | None:
        """Compile; None where no part that compiles was found."""
        name = self.asked.expression
        for _ in range(_MOST_ROUNDS):
            texts = self.part.texts()
            self.now = self.job.gathered(texts)
            if not self._has_host_code() and self.asked.types is None:
                self.is_whole = True
                return None
            options = left_out.options(self.job.options) if self.part.refused else self.job.options
            self.output = self.job.run(self.now, options, name)
            if self.output.ok:
                remarks = (*self._left_out(self.output.log), *self._conditions())
                return Extracted(self.output, self.output.symbol, self.now, name, remarks)
            if not self._changed():
                break
        whole = self.job.run(self.now, self.job.options, None)
        if whole.ok and self.job.request.name in symbols.entries(whole.ptx):
            name, remarks = self.job.request.name, self._left_out(self.output.log)
            return Extracted(whole, name, self.now, name, remarks)
        return None

    def _left_out(self, log: str) -> tuple[str, ...]:
        """Return the remarks on the left-out headers whose ``#include`` NVRTC reached."""
        return tuple(left_out.told(self.part.refused, log, self.gathered.texts))

    def _conditions(self) -> Iterator[str]:
        """Yield a remark on each header that is not found and may decide what is compiled.

        Raises
        ------
        CompileError
            If the header is one of the source's own, and a macro in question has no default.
        """
        given = {macro.partition("=")[0] for macro in defined(self.job.options)}
        given |= set(self.job.request.defines or {})
        known = [each for each in self.part.conditions() if each.macro not in given]
        reached = left_out.reached(self.output.log)
        for (file, line), reason in self.part.refused.items():
            conditions = [each for each in known if each.may_follow(file, line)]
            if file not in self.files.texts or not conditions:
                continue
            needed = next((each for each in conditions if not each.has_default), None)
            if needed is not None and self.part.names_own_header(file, line):
                place, macro = f"{needed.file}:{needed.line}", needed.macro
                raise CompileError(
                    f"{file}:{line}: {reason}\n{place}: what is compiled here depends on "
                    f"{macro}, which that header may define: name the header's folder in "
                    f"include=, or define {macro}, or say that it is not defined "
                    f"(defines={{{macro!r}: False}})"
                )
            if (file, line) in reached:
                names = ", ".join(dict.fromkeys(each.macro for each in conditions))
                first = conditions[0]
                yield (
                    f"{first.file}:{first.line}: what is compiled here depends on "
                    f"{names}, which the header that is left out at {file}:{line} may define"
                )

    def _has_host_code(self) -> bool:
        """Return whether there is anything that may be the host's."""
        return any(each.is_host for each in self.files.declarations)

    def _errors(self) -> Iterator[tuple[list[tuple[str, int]], set[str]]]:
        """Yield for each error its places, and the names that its message quotes."""
        log = self.output.log
        found = list(_ERROR.finditer(log))
        for at, match in enumerate(found):
            end = found[at + 1].start() if at + 1 < len(found) else len(log)
            causes = _CAUSE.findall(log[match.end() : end])
            places = [(match[1], int(match[2]))]
            if match[1] not in self.files.texts:
                places += [(file or self.job.file, int(line)) for line, file in causes]
            yield places, set(_QUOTED.findall(match[3]))

    def _changed(self) -> bool:
        """Leave out what does not compile and may be left out, or put back what is missing."""
        part = self.part
        before = len(part.left_out), len(part.words), len(part.needed)
        gone: set[Declaration] = set()
        names: set[str] = set()
        for places, quoted in self._errors():
            here = {each for place in places for each in part.droppable(*place)}
            gone |= here
            if not here:
                names |= quoted
        back = {e for e in part.left_out - self._fixed if not names.isdisjoint(e.names)}
        unreached = {name for name in names if name in self.files.by_name}
        part.left_out |= gone
        part.left_out -= back
        part.needed |= back
        part.words |= unreached
        if before != (len(part.left_out), len(part.words), len(part.needed)):
            return True
        broken = self._broken()
        is_more = not broken.keys() <= part.refused.keys()
        part.refused = {**part.refused, **broken}
        return is_more

    def _broken(self) -> dict[tuple[str, int], str]:
        """Return the includes of other projects' headers that do not compile, with the error."""
        errors = {match[1]: match for match in _ERROR.finditer(self.output.log)}
        found = {}
        for name in self.files.texts:
            text = self.gathered.headers.get(name, self.gathered.source)
            for line, row in enumerate(text.split("\n"), 1):
                included = _INCLUDED.match(row)
                error = errors.get(included[1]) if included and included[1] in errors else None
                if error is not None and error[1] not in self.gathered.texts:
                    found[name, line] = f"{error[1]}:{error[2]}: {error[3]}"
        return found

    def blamed_headers(self) -> frozenset[str]:
        """Return the headers in the caller's folders that do not compile as they are."""
        if self.output.ok:
            return frozenset()
        files = {file for places, _ in self._errors() for file, _ in places}
        return frozenset(files & self.gathered.texts.keys() - self.files.texts.keys())

    def explained(self, message: Callable[[str, Gathered], str]) -> str:
        """Return what is wrong with the part that is left."""
        overloads = list(dict.fromkeys(
            (kernel.name, kernel.types) for kernel in self.kernels if not kernel.is_special
        ))  # fmt: skip
        whole = self.job.run(self.now, self.job.options, None)
        if whole.ok and len(overloads) > 1 and self.asked.types is None:
            each = ", ".join(
                f"{k.signature} (line {k.line or k.declaration.first_line})" for k in self.kernels
            )
            return (
                f"{self.job.file} has {len(overloads)} kernels called {self.job.request.name}: "
                f"{each}; name one with its parameters, as {self.kernels[0].signature!r}"
            )
        text = message(left_out.without_marks(self.output.log), self.now)
        if whole.ok:
            kernel = self.kernels[0]
            is_template = kernel.template and not self.asked.arguments
            if is_template or self.asked.path not in (kernel.name, f"::{kernel.name}"):
                return no_such_kernel(self.job.request.name, self.job.file, self.files)
            text = f"{self.job.request.name} of {text}"
        quoted = {name for _, names in self._errors() for name in names}
        notes = [
            f"{each.file}:{each.first_line}: {', '.join(sorted(each.names))} is left out: it is "
            "host code, which does not compile for a GPU"
            for each in sorted(self.part.left_out, key=lambda each: each.first_line)
            if not quoted.isdisjoint(each.names)
        ]
        # The errors may be about names that a missing header declares, so it is named first.
        return "\n".join((*self._left_out(self.output.log), text, *notes))
