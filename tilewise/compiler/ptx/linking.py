"""Join several PTX modules to one, in which one calls functions that another defines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilewise.compiler.ptx.text import Body, Split, split
from tilewise.errors import CompileError

_HEAD = re.compile(r"\.address_size\s+\d+")
_LEADING = re.compile(r"^\s*\.(?:version|target|address_size)\b[^\n]*\n", re.MULTILINE)
_EXTERN = re.compile(r"\.extern\s+\.func\s*(?:\([^)]*\)\s*)?([\w$]+)")
# For inlined code, .loc names labels of the module's debug data, which is not joined.
_INLINED = re.compile(r",\s*function_name[^\n;]*")
_SECTION = re.compile(r"^\s*\.section\s[^{]*\{[^}]*\}", re.MULTILINE)
_NUMBERED = re.compile(r"\.(file|loc)(\s+)(\d{1,9})\b")


_CALL = re.compile(r"\bcall(?:\.uni)?(?=[\s(])\s*(?:\([^()]*\)\s*,\s*)?([\w$%]+)")
_DECLARED = re.compile(r"\.func\s*(?:\([^)]*\)\s*)?([\w$%]+)")
_ALIAS = re.compile(r"\.alias\s+([\w$%]+)\s*,\s*([\w$%]+)")
# The functions that the driver provides: CUDA's system calls, and its device runtime.
_SYSTEM = re.compile(r"vprintf|malloc|free|__assertfail|(?:cuda|cnp)[A-Z]\w*|__cuda\w*")


def is_system(function: str) -> bool:
    """Return whether a function that is not defined is one that the driver brings."""
    return _SYSTEM.fullmatch(function) is not None


def undefined(module: Split, kernel: str) -> tuple[str, str] | None:
    """Find a call that nothing can carry out, of the kernel or of what it calls.

    Returns
    -------
    (str, str) or None
        The function that calls, and the one that the module only declares, which is no system call.
    """
    declarations = "\n".join(module.declarations)
    aliases = dict(_ALIAS.findall(declarations))
    missing = set(_DECLARED.findall(declarations)) - module.functions.keys() - aliases.keys()
    missing = {name for name in missing if not is_system(name)}
    waiting, seen = [kernel], {kernel}
    while missing and waiting:
        caller = waiting.pop(0)
        body = module.functions[caller]
        for called in _CALL.findall(module.text, body.start, body.end):
            if called in missing:
                return caller, called
            called = aliases.get(called, called)
            if called in module.functions and called not in seen:
                seen.add(called)
                waiting.append(called)
    return None


def linked(text: str, others: Sequence[str]) -> str:
    """Return a module that has the functions of other modules too, which it declares and calls.

    Parameters
    ----------
    text : str
        The PTX with the kernel.
    others : sequence of str
        PTX with functions, for the same target; they may call each other. Kernels in it are left
        out.

    Raises
    ------
    CompileError
        If one can't be read, or two define one function.
    """
    if not others:
        return text
    whole = split(text)
    head = _HEAD.search(whole.text)
    if head is None:
        raise CompileError("PTX that is to be linked has no .address_size")
    parts, defined = [], dict(whole.functions)
    declared = set(whole.declarations)
    files = max(whole.files, default=0)
    for other in others:
        part = split(other)
        parts.append(_renumbered(_without_twins(other, part, defined, declared), files))
        files += max(part.files, default=0)
        defined |= {name: body for name, body in part.functions.items() if not body.is_kernel}
        declared |= set(part.declarations)
    body = "\n".join([*parts, text[head.end() :]])
    # PTX allows a call only after the function's definition or declaration.
    declarations, body = _declarations_first(body, defined)
    return f"{text[: head.end()]}\n{declarations}\n{body}"


def _without_twins(text: str, part: Split, defined: dict[str, Body], declared: set[str]) -> str:
    """Return a module without the functions that modules before it have, as inline ones."""
    for name, body in part.functions.items():
        if not body.is_kernel and name not in defined:
            continue
        is_weak = body.is_kernel or (".weak" in body.header and ".weak" in defined[name].header)
        if not is_weak:
            raise CompileError(f"{name} is defined twice in what is linked")
        text = _blanked(text, body.start - 1 - len(body.header), body.end + 1)
    for declaration in declared.intersection(part.declarations):
        if not declaration.startswith(".extern"):
            at = part.text.index(declaration)
            text = _blanked(text, at, part.text.index(";", at + len(declaration)) + 1)
    return text


def _blanked(text: str, start: int, end: int) -> str:
    return text[:start] + " " * (end - start) + text[end:]


def _renumbered(text: str, files: int) -> str:
    """Return a module without its head and its debug data, with its files renumbered."""
    text = _SECTION.sub("", _LEADING.sub("", text))
    return _NUMBERED.sub(
        lambda found: f".{found[1]}{found[2]}{int(found[3]) + files}", _INLINED.sub("", text)
    )


def _declarations_first(text: str, defined: dict[str, Body]) -> tuple[str, str]:
    """Take the ``.extern`` functions' declarations out of a text: declarations, and the rest."""
    kept: dict[str, str] = {}
    pieces, done = [], 0
    for found in _EXTERN.finditer(text):
        end = text.index(";", found.end()) + 1
        pieces.append(text[done : found.start()])
        own = defined.get(found[1])
        kept[found[1]] = f"{own.header.strip()};" if own else text[found.start() : end]
        done = end
    return "\n".join(kept.values()), "".join((*pieces, text[done:]))
