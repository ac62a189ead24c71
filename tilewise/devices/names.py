"""Find GPUs by their names, as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterable


def words(name: str) -> list[str]:
    """Return the words of a GPU's name, without the vendor's: older drivers leave it out."""
    return [word for word in re.split(r"[\s-]+", name.casefold()) if word not in ("", "nvidia")]


def find(name: str, names: Iterable[str]) -> str:
    """Return the full name of the GPU that ``name`` means.

    Parameters
    ----------
    name : str
        Its name, or whole words of it that no other has, with or without spaces between them;
        upper and lower case alike.
    names : iterable of str
        The names to choose from, as the driver spells them.

    Raises
    ------
    ValueError
        If there is none, or more than one; the message lists those there are.

    Examples
    --------
    >>> find("rtx3090", ["NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090"])
    'NVIDIA GeForce RTX 3090'
    """
    there = list(dict.fromkeys(names))
    asked = words(name)
    # Whole words: an H20 is no H200.
    fitting = [each for each in there if asked and set(asked) <= set(words(each))]
    if not fitting:
        fitting = [each for each in there if asked and "".join(asked) in _joined(words(each))]
    if len(fitting) != 1:
        what = f"fits {', '.join(fitting)}: say which" if fitting else "is none that is known"
        raise ValueError(f"GPU {name!r} {what}; there are {', '.join(there)}")
    return fitting[0]


def _joined(of: list[str]) -> set[str]:
    """Return every run of consecutive words, joined into one word."""
    ends = range(1, len(of) + 1)
    return {"".join(of[first:end]) for end in ends for first in range(end)}
