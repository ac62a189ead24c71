"""A command that fails: what was wrong, for people and as one JSON document."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tilewise.cli.commands.options import print_json
from tilewise.cli.usage import with_options
from tilewise.errors import CheckError


def failed(
    error: BaseException, message: str, code: int, *, as_json: bool, hint: str = "", **more: Any
) -> int:
    """Say what was wrong, on standard error and, where it is asked for, on standard output.

    Parameters
    ----------
    error : Exception
    message : str
        What to say of it.
    code : int
        The exit code.
    as_json : bool
        Whether standard output is to be a JSON document.
    hint : str
        What may help.
    **more
        Further members of the document.

    Returns
    -------
    int
        The exit code.
    """
    message = with_options(message)
    if as_json:
        findings = error.findings if isinstance(error, CheckError) else ()
        document: dict[str, Any] = {"error": message, "kind": type(error).__name__}
        if findings:
            document["findings"] = [
                {**finding.to_dict(), "message": with_options(finding.message)}
                for finding in findings
            ]
        print_json({**document, **more})
    return told(message, code, hint)


def told(message: str, code: int, hint: str = "") -> int:
    """Say what was wrong on standard error, where somebody reads it."""
    from tilewise.cli.told import error

    with suppress(OSError):
        error(message, hint)
    return code
