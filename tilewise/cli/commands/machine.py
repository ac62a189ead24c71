"""The commands about this machine."""

from __future__ import annotations

from tilewise.cli import doctor as diagnosis
from tilewise.cli.commands.options import (
    BAD,
    RIGHT,
    Json,
    print_json,
)


def doctor(as_json: Json = False) -> int:
    """What this machine has, and what is missing for what."""
    found = diagnosis.diagnose()
    if as_json:
        print_json(found.to_dict())
    else:
        from tilewise.cli import show

        show.diagnosis(found)
    return RIGHT if found.ok else BAD
