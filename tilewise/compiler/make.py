"""Compile once: NVRTC's output becomes a kernel, or its log a readable error."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import Any

from tilewise.compiler import left_out, nvrtc, signatures, symbols
from tilewise.compiler.compiled import Compiled, Parameter, Variable
from tilewise.compiler.explained import explained
from tilewise.compiler.extract import Extracted, extract
from tilewise.compiler.includes import Gathered
from tilewise.compiler.job import Job
from tilewise.compiler.mangled import demangle
from tilewise.compiler.options import left_defined
from tilewise.compiler.plain_types import plain_types
from tilewise.compiler.source.launches import has_host_launch
from tilewise.compiler.source.tree import parsed
from tilewise.counted import Resources
from tilewise.errors import CompileError, ParserMissingError

# NVRTC compiles all kernels of a source but templates, whichever of them was asked for.
_REMEMBERED = 8
_OF_A_LIBRARY = re.compile(
    r"(?:cuda|cub|thrust|std|cooperative_groups|nvcuda)::"
    r"|_Z(?:St|N(?:St|4cuda|3cub|6thrust|3std|18cooperative_groups|6nvcuda))"
)
"""The beginning of names in libraries' namespaces, and of symbols that are not plain names (Itanium
C++ ABI, 5.1). Users do not set those variables.
"""
_NAME_IS_WRONG = "__nv_name_map("  # the source that NVRTC names in messages about the kernel's name
_LINKED = re.compile(r"--?(?:device-c|dc|rdc|relocatable-device-code|ewp|extensible-whole-program)")
"""The options by which a kernel may launch others."""
_modules: OrderedDict[tuple[Any, ...], nvrtc.Output] = OrderedDict()
_lock = threading.Lock()


def forget() -> None:
    """Forget recent modules."""
    with _lock:
        _modules.clear()


def make(job: Job, gathered: Gathered) -> Compiled:
    """Compile a kernel, or take it from what another of the same source was just compiled to.

    Raises
    ------
    CompileError
        If the source does not compile, or has no kernel of this name.
    LimitError
        If compiling it takes more than its limits allow.
    """
    name, arch, source, file = job.request.name, job.request.arch, job.request.source, job.file
    found = _module(job, gathered)
    output, symbol = found.output, found.symbol
    if symbol not in symbols.entries(output.ptx):
        raise CompileError(_no_such_kernel(name, file, source, output.ptx))
    resources = Resources(0, 0, 0, 0, 0, 0, "ptxas was not asked for machine code")
    if job.request.machine_code:
        resources = symbols.resources(output.log, output.cubin, symbol)
    ptx = symbols.with_file_name(output.ptx, file)
    parameters, variables = _declared(
        job, found, symbols.parameters(ptx, symbol), symbols.variables(ptx)
    )
    return Compiled(
        name, symbol, arch, source, file, ptx, output.cubin, resources, parameters, variables,
        is_part=found.gathered is not gathered, remarks=found.remarks,
        macros=tuple(left_defined(job.options)),
    )  # fmt: skip


def _module(job: Job, gathered: Gathered) -> Extracted:
    """Return what the source was compiled to, and the kernel's symbol."""
    # NVRTC itself reads the headers of what comes with tilewise. With limits, a source is
    # compiled anew each time, to see whether it stays within them.
    name = job.request.name
    is_reusable = gathered.is_whole and not job.is_shipped and job.request.limits is None
    texts = (gathered.source, *gathered.headers.items(), *gathered.version())
    key = (*texts, job.file, job.options, job.request.trusted)
    with _lock:
        output = _modules.get(key) if is_reusable else None
        if output is not None:
            _modules.move_to_end(key)
    if output is not None and name in symbols.entries(output.ptx):
        return Extracted(output, name, gathered, name)
    found = _compiled(job, gathered)
    if is_reusable and found.symbol == name and found.gathered is gathered:
        with _lock:
            _modules[key] = found.output
            if len(_modules) > _REMEMBERED:
                _modules.popitem(last=False)
    return found


def _compiled(job: Job, gathered: Gathered) -> Extracted:
    """Compile the source, or where that fails the kernel's part of it."""
    name = job.request.name
    if gathered.toolkit is not None and _can_not_be_whole(job):
        found = extract(job, gathered, lambda log, part: _message(log, job, part))
        if found is not None:
            return found
    output = job.run(gathered, job.options, name)
    if output.ok:
        return Extracted(output, output.symbol, gathered, name)
    refused = output.log
    if _NAME_IS_WRONG in refused:  # it may be a symbol
        output = job.run(gathered, job.options, None)
        if output.ok and name in symbols.entries(output.ptx):
            return Extracted(output, name, gathered, name)
    found = None
    if not job.is_shipped:
        found = extract(job, gathered, lambda log, part: _message(log, job, part))
    if found is not None:
        return found
    if _NAME_IS_WRONG not in refused:  # is it the source that is wrong, or a template's instance?
        output = job.run(gathered, job.options, None)
    if not output.ok:
        message = _message(output.log, job, gathered)
        raise CompileError(message + _of_another(message, job))
    if symbols.is_instance(name, job.request.source):
        raise CompileError(f"{name} of {_message(refused, job, gathered, name)}")
    raise CompileError(_no_such_kernel(name, job.file, job.request.source, output.ptx))


def _can_not_be_whole(job: Job) -> bool:
    """Return whether NVRTC would refuse the whole source, because its host code launches a kernel.

    It would read all of CUDA's headers before it does.
    """
    if any(_LINKED.match(option) for option in job.options):
        return False
    try:
        return has_host_launch(parsed(job.request.source))
    except ParserMissingError:
        return False


def _declared(
    job: Job,
    module: Extracted,
    parameters: list[tuple[str, str, int, int]],
    variables: tuple[Variable, ...],
) -> tuple[tuple[Parameter, ...], tuple[Variable, ...]]:
    """Return the parameters and the variables of a module, with what the source declares."""
    variables = tuple(
        replace(each, name=each.name.replace("(anonymous namespace)::", ""))
        for each in variables
        if not _OF_A_LIBRARY.match(each.name)
    )
    # A function's variables are not visible at the end of the source, and a symbol that can't be
    # demangled is not a name there. The variables of kernels that come with tilewise are constants.
    names = [
        each.name
        for each in variables
        if not each.symbol.startswith("_ZZ")
        and not each.name.startswith("_Z")
        and not job.is_shipped
    ]
    # If the PTX leaves the type of a parameter open, the source has it.
    is_open = any(kind[0] in "bsu" and kind != "b8" for _, kind, _, _ in parameters)
    is_open &= not module.name.startswith("_Z")
    told = signatures.Told()
    types: tuple[str, ...] = ()
    if job.request.lines:
        run = partial(_run, job, module.gathered)
        if is_open:  # NVRTC takes longer to tell, and with CUDA's headers a second
            types = plain_types(job, module.gathered) or ()
        told = signatures.told(module.name if is_open and not types else "", names, run)
        types = types or told.parameters
    if len(types) != len(parameters):
        types = ("",) * len(parameters)
    found = [
        replace(each, declared=kind, shape=shape, is_known=each.name in told.variables)
        for each in variables
        for kind, shape in (told.variables.get(each.name, ("", ())),)
    ]
    of_parameters = zip(parameters, types, strict=True)
    return tuple(Parameter(*fields, each) for fields, each in of_parameters), tuple(found)


def _run(job: Job, gathered: Gathered, more: str, option: str, told: str) -> nvrtc.Output:
    """Compile a source with further text at its end, a further option, and another name.

    It is compiled for a virtual architecture, without ptxas, because the front end gives the types.
    """
    longer = replace(gathered, source=gathered.source + more)
    real, virtual = (f"--gpu-architecture={kind}_" for kind in ("sm", "compute"))
    return job.run(longer, [*(x.replace(real, virtual) for x in job.options), option], told)


def _no_such_kernel(name: str, file: str, source: str, ptx: str) -> str:
    there = symbols.kernels(source, ptx)
    if not source.strip():
        return f"{file} is empty: it has no kernel called {name!r}"
    if not there:
        return f"{file} has no kernel called {name!r}; it has no kernel (__global__ function)"
    message = f"{file} has no kernel called {name!r}; it has {', '.join(there)}"
    if f"{name}<...>" in there:
        message += (
            f". {name} is a template, {symbols.template_of(source, name)}: ask for an instance, "
            f"{name}<...> with arguments in the place of the dots"
        )
    return message


def _of_another(message: str, job: Job) -> str:
    """Return a line that names the kernel of the first error, if it is another one.

    It is empty if the error is in the kernel that was asked for, or if its kernel is not known.
    """
    if job.request.name is None:
        return ""
    place = re.search(rf"^{re.escape(job.file)}:(\d+): error", message, flags=re.MULTILINE)
    entry = re.search(r"^ptxas error *: Entry function '([^']+)'", message, flags=re.MULTILINE)
    if place is not None:
        kernel = symbols.kernel_around(job.request.source, int(place[1]))
    elif entry is not None:
        name = demangle(entry[1])  # a symbol that can't be demangled is no name
        kernel = "" if name.startswith("_Z") else re.split(r"<|\(", name)[0].split("::")[-1]
    else:
        return ""
    asked = re.split(r"<|\(", job.request.name)[0].split("::")[-1].strip()
    if not kernel or kernel == asked:
        return ""
    return (
        f"\nThe first error is in another kernel of the file, {kernel}: all of a file is compiled, "
        f"so {asked} does not run before that is mended, or in a file of its own"
    )


def _message(log: str, job: Job, gathered: Gathered, name: str | None = None) -> str:
    """Return NVRTC's log for a template's instance ``name``: ``file:line: error: ...``
    and the line.
    """
    lines = [line for line in log.splitlines() if not re.match(r"ptxas +(info|\.) ", line)]
    text = left_out.as_includes("\n".join(lines))
    text = re.sub(r"^(\S.*?)\((\d+)\): ", r"\1:\2: ", text, flags=re.MULTILINE)
    if "ptxas" in text and (refused := re.search(r", line (\d+); ", text)):
        # ptxas names a line of the PTX, which a virtual architecture gives without it.
        virtual = [o.replace("=sm_", "=compute_") for o in job.options if "ptxas" not in o]
        ptx = job.run(gathered, virtual, name).ptx
        line = symbols.source_line(ptx, int(refused[1]), job.file)
        rows = job.request.source.splitlines()
        if 1 <= line <= len(rows):
            text = f"{job.file}:{line}: error: ptxas refuses this line\n  {rows[line - 1]}\n{text}"
    text = explained(text, name or job.request.name)
    return f"{job.file} does not compile for {job.request.arch}:\n{text}"
