"""Send a request to a compiler or an assembler in a process of its own, and return its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewise.compiler import processes
from tilewise.compiler.cache import pack, unpack
from tilewise.compiler.clock import STOPPED, Clock
from tilewise.errors import CompileError, LimitError
from tilewise.limits import Limits

_GRACE = 5.0  # seconds that a tool has to name its line, when its time is over


def exchange(
    module: str,
    tool: str,
    asked: Mapping[str, Any],
    file: str,
    limits: Limits,
    clock: Clock,
    place: Callable[[Mapping[str, Any]], tuple[str, int] | None] | None = None,
) -> dict[str, Any]:
    """Start a process for one request, and return its answer.

    Parameters
    ----------
    module : str
        The module that the process runs.
    tool, file : str
        The names of the tool and of the source in messages.
    asked : mapping
        The request, of JSON values and ``bytes``.
    limits : Limits
    clock : Clock
        The time that is left.
    place : callable, optional
        A function that takes the answer of a tool that got no more memory, and returns the file and
        the line that it was compiling, or None. With this function, a tool whose time is over gets
        no more memory, so that the error can name its line.

    Raises
    ------
    LimitError
        If it takes more than ``limits`` allow.
    CompileError
        If it does not start, or crashes.
    """
    clock.check()
    try:
        heard = processes.ask(
            module, pack(asked), clock, grace=_GRACE if place is not None else 0.0
        )  # fmt: skip
    except TimeoutError as error:
        raise CompileError(f"{file}: the {tool} did not start: {error}") from None
    answer = unpack(heard.said)
    if heard.is_late:
        found = place(answer) if place is not None and answer is not None else None
        raise clock.exceeded(*(found or ()))
    if answer is not None:
        return answer
    if limits.memory is not None and heard.is_out_of_memory:
        raise LimitError("memory", limits.memory, STOPPED, file)
    raise CompileError(f"{file}: the {tool} broke down ({heard.how})")
