"""The assembler in a process of its own, which can be stopped, and which can open no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from tilewise.compiler import confine, processes
from tilewise.compiler.cache import pack, unpack
from tilewise.compiler.clock import STOPPED, Clock
from tilewise.compiler.exchange import exchange
from tilewise.compiler.nvrtc import Output
from tilewise.compiler.ptx import assembler
from tilewise.errors import LimitError
from tilewise.limits import Limits


def run(text: str, file: str, arch: str, tool: str, limits: Limits, clock: Clock) -> Output:
    """Make machine code, as :func:`tilewise.compiler.ptx.assembler.assemble` does.

    Parameters
    ----------
    text, arch, tool
        The arguments of :func:`tilewise.compiler.ptx.assembler.assemble`.
    file : str
        The name in messages.
    limits : Limits
    clock : Clock
        The time that is left.

    Raises
    ------
    LimitError
        If it takes more than ``limits`` allow.
    CompileError
        If the assembler crashes.
    """
    asked = {
        "text": text, "arch": arch, "tool": tool, "seconds": clock.left(), "memory": limits.memory,
    }  # fmt: skip
    answer = exchange(__name__, "assembler", asked, file, limits, clock)
    output = Output(**answer)
    if limits.memory is not None and output.is_full:
        raise LimitError("memory", limits.memory, STOPPED, file)
    return output


def _prepared() -> Callable[[bytes], bytes]:
    assembler.tools()  # loads the library while files can be opened
    return lambda asked: pack(asdict(_answer(asked)))


def _answer(asked: bytes) -> Output:
    job = unpack(asked)
    assert job is not None
    try:
        if (memory := job.pop("memory")) is not None:
            confine.limit_memory(memory)
        if job["tool"].startswith(assembler.LINKER):  # a program is a file
            confine.close_files()
        return assembler.assemble(**job)
    except MemoryError:
        return Output("", ok=False, is_full=True)


def main() -> None:
    """Answer the requests on standard input until it ends."""
    processes.serve(_prepared)
