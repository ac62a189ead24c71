"""The assembler in a process of its own, which can be stopped, and which can open no file."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict

from tilewise.compiler import confine
from tilewise.compiler.cache import pack, unpack
from tilewise.compiler.clock import STOPPED, Clock
from tilewise.compiler.nvrtc import Output
from tilewise.compiler.ptx import assembler
from tilewise.errors import CompileError, LimitError
from tilewise.limits import Limits


def run(text: str, file: str, arch: str, tool: str, limits: Limits, clock: Clock) -> Output:
    """Make machine code, as :func:`tilewise.compiler.ptx.assembler.assemble` does.

    Parameters
    ----------
    text, arch, tool
        As :func:`tilewise.compiler.ptx.assembler.assemble` takes them.
    file : str
        What messages call it.
    limits : Limits
    clock : Clock
        The time that is left.

    Raises
    ------
    LimitError
        If it takes more than ``limits`` allow.
    CompileError
        If the assembler breaks down.
    """
    clock.check()
    with confine.python(__name__) as process:
        try:
            is_started = confine.wait_for_start(process)
            with clock.running():
                asked = {
                    "text": text, "arch": arch, "tool": tool, "seconds": clock.left(),
                    "memory": limits.memory,
                }  # fmt: skip
                said, _ = process.communicate(pack(asked), clock.left())
        except TimeoutError as error:
            raise CompileError(f"{file}: the assembler did not start: {error}") from None
        except subprocess.TimeoutExpired:
            raise clock.exceeded() from None
        finally:
            process.kill()
    answer = unpack(said)
    if answer is None:
        if limits.memory is not None and is_started and confine.was_out_of_memory(process):
            raise LimitError("memory", limits.memory, STOPPED, file)
        raise CompileError(f"{file}: the assembler broke down ({confine.how_it_ended(process)})")
    output = Output(**answer)
    if limits.memory is not None and output.is_full:
        raise LimitError("memory", limits.memory, STOPPED, file)
    return output


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
    """Answer what is asked on standard input, and end."""
    # What the assembler might print goes nowhere: standard output is for the answer alone.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        assembler.tools()  # it loads the library, which is a file
        confine.say_started(answers)
        answer = pack(asdict(_answer(sys.stdin.buffer.read())))
        with suppress(BrokenPipeError):
            answers.write(answer)
            answers.flush()
    os._exit(0)
