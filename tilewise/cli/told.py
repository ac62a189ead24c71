"""A message on standard error. What shows results is not imported for it, which takes longer."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text


def error(message: str, as_hint: str = "") -> None:
    """Print ``message`` to standard error, unwrapped so that it can be copied."""
    out = Console(stderr=True, highlight=False, soft_wrap=True)
    out.print(Text.assemble(("tilewise: ", "bold red"), message))
    if as_hint:
        out.print(Text(as_hint, style="dim"))
