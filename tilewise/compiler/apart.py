"""Run NVRTC in a process of its own, which can be stopped, and which can't open files.

What NVRTC does with a source can't be stopped from inside: macros that double one another fill a
machine's memory, and templates can take for ever. So where there are limits, a process compiles
one source and ends; the one that waits for it kills it when its time is over.

The process gives up what it does not need: on Linux it can't take more memory than its limit, and
where Linux has Landlock, it can open no file, whatever the source says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewise.compiler import confine, forking, nvrtc, processes
from tilewise.compiler.cache import pack, unpack
from tilewise.compiler.clock import STOPPED, Clock
from tilewise.compiler.exchange import exchange
from tilewise.errors import CompileError, DeviceUnavailableError, LimitError
from tilewise.limits import Limits

_MODULE = "tilewise.compiler.apart"
_FULL = re.compile(r"^(\S.*?)\((\d+)\): catastrophic error: out of memory", re.MULTILINE)
# The message of ptxas when it gets no more memory: that there are errors, without naming one.
_SILENT = re.compile(r"ptxas fatal\s*: Ptx assembly aborted due to errors\s*")
# Behind the name of a file NVRTC says why it can't be opened, which tells whether it is there.
_UNOPENED = re.compile(r"""(open source file ("[^"\n]*"|'[^'\n]*'))[^\n]*""")
NOT_CLOSED = (
    "names in it may be pasted (##) to __has_include, which would look for any file, and this "
    "system can't forbid that; trust it with trusted=True"
)


def run(
    source: str,
    file: str,
    options: Sequence[str],
    name: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    limits: Limits,
    is_trusted: bool = False,
    must_close: bool = False,
    clock: Clock | None = None,
    folders: Sequence[Path] = (),
) -> nvrtc.Output:
    """Compile ``source`` once, as :func:`tilewise.compiler.nvrtc.run` does.

    Parameters
    ----------
    source, file, options, name, headers
        The arguments of :func:`tilewise.compiler.nvrtc.run`.
    limits : Limits
    is_trusted : bool
        Whether it may open files. If not, it can open none, if the system can forbid that.
    must_close : bool
        Whether to refuse to compile if the system can't forbid it to open files.
    clock : Clock, optional
        The time that is left; by default all that the limits allow.
    folders : sequence of Path
        The folders in which it may open files nevertheless.

    Raises
    ------
    LimitError
        If it takes more than ``limits`` allow.
    CompileError
        If the compiler crashes, or if the system can't forbid it to open files and must.
    DeviceUnavailableError
        If NVRTC can't be loaded.
    """
    asked = {
        "source": source, "file": file, "options": list(options), "name": name,
        "headers": dict(headers or {}), "memory": limits.memory, "is_trusted": is_trusted,
        "must_close": must_close, "folders": list(map(str, folders)),
    }  # fmt: skip
    clock = clock or Clock(limits.seconds, file)
    answer = exchange(_MODULE, "compiler", asked, file, limits, clock, _place)
    if unavailable := answer.pop("unavailable", ""):
        raise DeviceUnavailableError(unavailable)
    if answer.pop("is_open", False):
        raise CompileError(f"{file}: {NOT_CLOSED}")
    place = None if answer["ok"] else _place(answer)
    is_full = place or answer["is_full"] or _SILENT.fullmatch(answer["log"])
    if limits.memory is not None and confine.can_limit_memory() and is_full:
        raise LimitError("memory", limits.memory, STOPPED, *(place or (file,)))
    if not is_trusted:
        answer["log"] = _UNOPENED.sub(r"\1", answer["log"])
    return nvrtc.Output(**answer)


def has_server() -> bool:
    """Return whether :func:`run` can fork a process, by a server that is started if needed."""
    return forking.has_server(_MODULE)


def _place(answer: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the file and the line at which NVRTC ran out of memory; None if it did not say so.

    NVRTC can't be asked which line it compiles, but its log names the line at which it got no more
    memory.
    """
    found = _FULL.search(answer.get("log", ""))
    return None if found is None else (found[1], int(found[2]))


def _prepared() -> Callable[[bytes], bytes]:
    try:
        # Loads NVRTC's other libraries while files can be opened; with these options it is quick.
        nvrtc.run("", "<nothing>", ["--minimal", "--fdevice-syntax-only"])
    except DeviceUnavailableError as error:
        unavailable = pack({"unavailable": str(error)})
        return lambda asked: unavailable
    return _answer


def _answer(asked: bytes) -> bytes:
    job = unpack(asked)
    assert job is not None
    memory, is_trusted, must_close = map(job.pop, ("memory", "is_trusted", "must_close"))
    folders = list(map(Path, job.pop("folders")))
    try:
        if memory is not None:
            confine.limit_memory(memory)
        if not is_trusted and not confine.close_files(*folders) and must_close:
            return pack({"is_open": True})
        return pack(asdict(nvrtc.run(**job)))
    except DeviceUnavailableError as error:
        return pack({"unavailable": str(error)})
    except MemoryError:
        return pack(asdict(nvrtc.Output("", ok=False, is_full=True)))


def main() -> None:
    """Answer the requests on standard input until it ends."""
    processes.serve(_prepared)
