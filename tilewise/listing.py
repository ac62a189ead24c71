"""List the kernels of files of CUDA C++ with their names, parameters and launches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tilewise.compiler import Parameter, architectures, source_files
from tilewise.compiler.ahead import cores
from tilewise.compiler.extract import nearest, own_texts, wanted
from tilewise.compiler.job import job_of
from tilewise.compiler.names import declarations
from tilewise.compiler.ptx import module
from tilewise.compiler.source.instances import instances
from tilewise.compiler.source.kernels import KernelDeclaration
from tilewise.compiler.source.launches import HostLaunch, is_of, launches
from tilewise.compiler.source.part import Files, read
from tilewise.errors import CompileError, ParserMissingError, TilewiseError
from tilewise.kernel import Kernel
from tilewise.limits import Limits
from tilewise.listed import ListedKernel, ListedLaunch
from tilewise.targets import PTX_SUFFIX, SUFFIXES, check_is_file

_LISTED = (*SUFFIXES, PTX_SUFFIX)
_Places = dict[tuple[str, int, str, tuple[str, ...]], list[tuple[str, KernelDeclaration]]]
"""The kernels by their place in a source, each with the files in which it was found."""


def files_of(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the files of CUDA C++ and PTX that paths name; for a folder all those in and below it.

    Raises
    ------
    FileNotFoundError
        If a path does not exist, or a folder has no such file.
    PermissionError
        If a folder can't be read.
    OSError
        If a path is a pipe or a device.
    """
    found: dict[Path, None] = {}
    for each in map(Path, paths):
        if each.is_dir():
            os.scandir(each).close()  # raises the error of a folder that can't be read
            inside = sorted(p for p in each.rglob("*") if p.suffix in _LISTED and p.is_file())
            if not inside:
                raise FileNotFoundError(f"there is no file *.cu, *.cuh or *.ptx in {each}")
            found.update(dict.fromkeys(inside))
        else:
            check_is_file(each)
            found[each] = None
    return list(found)


def list_kernels(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    name: str | None = None,
    arch: str | None = None,
    compiled: bool = True,
    defines: Mapping[str, Any] | None = None,
    include: Sequence[str | Path] = (),
    trusted: bool = False,
    limits: Limits | None = None,
    done: Callable[[str], object] = lambda _: None,
) -> tuple[ListedKernel, ...]:
    """List the kernels of files, in the order of their text.

    A kernel in a header is named by a file that includes it. If one of several files can't be read,
    it is listed without a name and with the problem.

    Parameters
    ----------
    paths : path, or iterable of paths
        The files; for a folder, all ``*.cu``, ``*.cuh`` and ``*.ptx`` files in it and below.
    name : str, optional
        The name of the kernels to list; if it is an instance of a template, that instance is
        compiled.
    arch : str, optional
        The architecture to compile for, as in ``"sm_90a"``; by default the emulator's architecture,
        and for PTX its own target.
    compiled : bool
        Whether each kernel is compiled. A template is compiled as the first of its instances that
        the files use, and not at all if they use none.
    defines, include, trusted, limits
        The arguments of :class:`tilewise.Kernel`.
    done : callable
        A function that is called with the name of each kernel that was compiled, from any thread.

    Returns
    -------
    tuple of ListedKernel

    Raises
    ------
    FileNotFoundError
        If a file does not exist.
    ParserMissingError
        If the parser is not installed.
    TypeError
        If ``paths`` is neither a path nor an iterable of paths.
    ValueError
        If the only file is not text or is PTX that can't be read, if there is no kernel called
        ``name``, or if NVRTC does not know ``arch``.

    Examples
    --------
    >>> import tilewise
    >>> path = tilewise.rung("coalesced").path
    >>> [kernel] = tilewise.list_kernels(path, compiled=False)
    >>> kernel.name, kernel.line, kernel.parameters[:4]
    ('coalesced', 13, ('int m', 'int n', 'int k', 'real alpha'))
    """
    if arch is not None and arch not in architectures():
        raise ValueError(
            f"NVRTC does not know arch {arch!r}; it knows {', '.join(architectures())}"
        )
    if not isinstance(paths, str | os.PathLike | Iterable):
        raise TypeError(f"paths is {paths!r}; it takes a path, or several")
    every = files_of([paths] if isinstance(paths, str | os.PathLike) else paths)
    files: list[Path] = []
    others: list[ListedKernel] = []
    for path in every:
        try:
            _check(path)
        except (OSError, ValueError) as error:
            if len(every) == 1:
                raise
            others.append(_unread(path, str(error)))
            continue
        if path.suffix == PTX_SUFFIX:
            others += _of_ptx(path, name, arch, compiled, limits, done)
        else:
            files.append(path)
    if not files:
        return tuple(others)
    by_place: _Places = {}
    asked: dict[str, dict[str, list[str]]] = {}  # by file
    launched: dict[str, list[HostLaunch]] = {}
    for path in files:
        found = _read(Kernel(path, "kernel", defines, include=include, trusted=trusted,
                             limits=limits))  # fmt: skip
        asked[str(path)] = instances(found)
        launched[str(path)] = launches(found)
        for kernel in found.kernels:
            place = (str(Path(kernel.file).resolve()), kernel.declaration.start, kernel.name,
                     kernel.types)  # fmt: skip
            by_place.setdefault(place, []).append((str(path), kernel))
    if name is not None:
        by_place = _called(name, by_place)
    named = [
        (place, found) for place, found in by_place.items() if _is_listed(found[0][1], by_place)
    ]

    def listed(each: tuple[Any, list[tuple[str, KernelDeclaration]]]) -> ListedKernel:
        place, found = each
        # Its own file comes first, then the files that include it.
        found = sorted(found, key=lambda one: str(Path(one[0]).resolve()) != place[0])
        kernel = found[0][1]
        names: tuple[str, ...] = ()
        if kernel.template:
            given = (each for path, _ in found for each in asked[path].get(kernel.name, ()))
            names = tuple(dict.fromkeys(given))
        is_one_of_many = (
            len({key[3] for key in by_place if key[0] == place[0] and key[2] == kernel.name}) > 1
        )
        own = kernel.signature if is_one_of_many else kernel.name
        tried = names[0] if names else "" if kernel.template else own
        if name is not None and ("<" in name or "(" in name):
            tried = name
        file, problem = found[0][0], ""
        remarks: tuple[str, ...] = ()
        for file, _ in found if compiled and tried else ():
            problem, remarks = _compiled(
                Kernel(file, tried, defines, include=include, trusted=trusted, limits=limits), arch
            )
            if not problem:
                break
        done(kernel.name)
        return ListedKernel(
            file, kernel.file, kernel.line or kernel.declaration.first_line, kernel.name,
            tuple(map(str, kernel.template)), tuple(map(str, kernel.parameters)),
            kernel.launch_bounds, kernel.cluster_dims, names,
            tuple(dict.fromkeys(
                _plain(launch) for path, _ in found for launch in launched[path]
                if is_of(launch.kernel, kernel.name)
            )),
            tried if compiled else "", problem, notes=remarks,
        )  # fmt: skip

    with ThreadPoolExecutor(cores()) as pool:
        return (*pool.map(listed, named), *others)


def launches_of(kernel: Kernel) -> list[HostLaunch]:
    """Return the launches of a kernel in the host code of its file and its headers, in order.

    The list is empty for PTX, and if the parser is not installed.
    """
    if kernel.is_ptx:
        return []
    try:
        return [each for each in launches(_read(kernel)) if is_of(each.kernel, kernel.name)]
    except ParserMissingError:
        return []


def _read(kernel: Kernel) -> Files:
    """Return the declarations of a kernel's file and of its own headers."""
    job = job_of(kernel.request())
    try:
        texts = own_texts(job, job.gathered())
    except CompileError:  # an error in what it includes, which the compilation reports
        texts = {job.file: kernel.source}
    return read(texts)


def _check(path: Path) -> None:
    """Raise an error if a file is not text, or is PTX that can't be read.

    Raises
    ------
    OSError, ValueError
    """
    text = source_files.read(path)
    if path.suffix == PTX_SUFFIX:
        try:
            module.target(text, str(path))
            module.entries(text, str(path))
        except CompileError as error:
            raise ValueError(str(error)) from None


def _unread(path: Path, problem: str) -> ListedKernel:
    """Return the record of a file that can't be read."""
    return ListedKernel(
        file=str(path), source=str(path), line=1, name="", template=(), parameters=(),
        launch_bounds="", cluster_dims="", instances=(), problem=problem,
    )  # fmt: skip


def _plain(launch: HostLaunch) -> ListedLaunch:
    return ListedLaunch(launch.file, launch.line, launch.text, launch.grid(), launch.block())


def _of_ptx(
    path: Path,
    name: str | None,
    arch: str | None,
    is_compiled: bool,
    limits: Limits | None,
    done: Callable[[str], object],
) -> list[ListedKernel]:
    """Return the kernels of a file of PTX.

    Raises
    ------
    ValueError
        If it has no kernel of that name.
    """
    text, file = source_files.read(path), str(path)
    try:
        asked = None if name is None else module.symbol_of(text, name, file)
    except CompileError as error:
        raise ValueError(str(error)) from None
    found = []
    for entry in module.entries(text, file):
        if asked not in (None, entry.symbol):
            continue
        tried = problem = ""
        written = [_in_ptx(x) for x in entry.parameters]
        if is_compiled:
            tried = entry.name
            try:
                made = Kernel.from_ptx(path, entry.symbol, limits=limits).compile(arch)
            except (TilewiseError, OSError, ValueError) as error:
                problem = str(error)
            else:
                written = declarations(made) or written
                if made.resources.missing:  # no assembler made machine code, so it was not tried
                    tried = ""
            done(entry.name)
        found.append(
            ListedKernel(
                file=file, source=file, line=entry.line, name=entry.name, template=(),
                parameters=tuple(written), launch_bounds=entry.launch_bounds,
                cluster_dims=entry.cluster_dims, instances=(), tried=tried, problem=problem,
                target=module.target(text, file),
            )
        )  # fmt: skip
    return found


def _in_ptx(parameter: Parameter) -> str:
    """Return a parameter in PTX's notation: ``".u64 .ptr x"``, ``".b8 v[16]"``."""
    extent = f"[{parameter.size}]" if parameter.type == "b8" else ""
    pointer = " .ptr" if parameter.declared == "*" else ""
    return f".{parameter.type}{pointer} {parameter.name}{extent}"


def _called(name: str, by_place: _Places) -> _Places:
    """Return the kernels with a name."""
    kernels = [found[0][1] for found in by_place.values()]
    asked = wanted(name)
    called = [
        each for each in kernels
        if (each.name == asked.path or each.base == asked.path)
        and asked.types in (None, each.types)
    ]  # fmt: skip
    if not called:
        names = list(dict.fromkeys(each.name for each in kernels))
        near = nearest(asked.path, kernels)
        there = f"did you mean {near}?" if near else f"there are {', '.join(names)}"
        raise ValueError(f"no kernel called {name!r}; {there}" if names else
                         f"no kernel called {name!r}, and no other")  # fmt: skip
    return {place: found for place, found in by_place.items() if found[0][1] in called}


def _is_listed(kernel: KernelDeclaration, by_place: Mapping[Any, Sequence[Any]]) -> bool:
    """Return whether it is a kernel of its own: no specialization, nor another's declaration."""
    if kernel.is_special:
        return False
    if kernel.has_body:
        return True
    same = (found[0][1] for found in by_place.values())
    return not any(
        each.has_body and each.name == kernel.name and each.types == kernel.types for each in same
    )


def _compiled(kernel: Kernel, arch: str | None) -> tuple[str, tuple[str, ...]]:
    """Return why a kernel does not compile, empty if it does, and the notes on one that does."""
    try:
        return "", kernel.compile(arch).remarks
    except (TilewiseError, OSError, ValueError, TypeError) as error:
        return str(error), ()
