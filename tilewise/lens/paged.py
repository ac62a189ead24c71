"""Results that are HTML pages, shown in a notebook's cell or saved as a file."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

from tilewise.provenance import write_whole

CELL_PIXELS = 840  # height of the frame in a notebook's cell


@dataclass(frozen=True)
class Paged:
    """A result with a page.

    Attributes
    ----------
    page : str
        The whole page, which needs no network and no server.
    """

    page: str

    def save(self, path: str | Path) -> Path:
        """Write the page, completely or not at all.

        Raises
        ------
        OSError
            If it can't be written.
        """
        write_whole(Path(path), self.page.encode())
        return Path(path)

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, for Jupyter."""
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" title="tilewise watch" '
            f'style="width: 100%; height: {CELL_PIXELS}px; border: 0"></iframe>'
        )
