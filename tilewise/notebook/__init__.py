"""Tools for lessons in a notebook: guesses beside counts, launches side by side, pictures."""

from tilewise.notebook.pictures import Picture, banks, bars, roofline, sectors
from tilewise.notebook.products import within
from tilewise.notebook.tables import Beside, Checked, Lines, Revealed, beside, check, lines, reveal

__all__ = [
    "Beside",
    "Checked",
    "Lines",
    "Picture",
    "Revealed",
    "banks",
    "bars",
    "beside",
    "check",
    "lines",
    "reveal",
    "roofline",
    "sectors",
    "within",
]
