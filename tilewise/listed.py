"""What is listed of a kernel and of its launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewise.places import Dim3


@dataclass(frozen=True)
class ListedLaunch:
    """One launch of a kernel that a file's host code makes.

    Attributes
    ----------
    file : str
    line : int
        From 1.
    text : str
        The configuration as the file has it: ``"<<<grid, 256>>>"``.
    grid, block : (int, int, int) or None
        Blocks a grid and threads a block, x first; None where they are known only at run time.
    """

    file: str
    line: int
    text: str
    grid: Dim3 | None
    block: Dim3 | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "file": self.file,
            "line": self.line,
            "text": self.text,
            "grid": None if self.grid is None else list(self.grid),
            "block": None if self.block is None else list(self.block),
        }


@dataclass(frozen=True)
class ListedKernel:
    """One kernel that a file has, or one file that can't be read.

    Attributes
    ----------
    file : str
        The file to name it by: ``FILE.cu:NAME``.
    source : str
        The file that it is written in, which may be a header of ``file``.
    line : int
        From 1.
    name : str
        With its namespaces; empty where the file can't be read.
    template : tuple of str
        The template's parameters with their defaults, as ``"int TILE = 16"``; empty where it is no
        template.
    parameters : tuple of str
        As ``"const float* x"``.
    launch_bounds, cluster_dims : str
        The arguments of ``__launch_bounds__`` and ``__cluster_dims__``; empty where it has none.
    instances : tuple of str
        The template's instances that the files themselves ask for.
    launches : tuple of ListedLaunch
        Its launches in the files' host code, in order.
    tried : str
        The name by which it was compiled: its own, or an instance; empty where none was.
    problem : str
        Why that does not compile, or why the file can't be read; else empty.
    target : str
        Of PTX, the architecture that it is for; else empty.
    notes : tuple of str
        Headers that were not found and were left out to compile it.
    """

    file: str
    source: str
    line: int
    name: str
    template: tuple[str, ...]
    parameters: tuple[str, ...]
    launch_bounds: str
    cluster_dims: str
    instances: tuple[str, ...]
    launches: tuple[ListedLaunch, ...] = ()
    tried: str = ""
    problem: str = ""
    target: str = ""
    notes: tuple[str, ...] = ()

    @property
    def compiles(self) -> bool | None:
        """Whether it compiles; None where it was not compiled."""
        return not self.problem if self.tried else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "file": self.file,
            "source": self.source,
            "line": self.line,
            "name": self.name,
            "template": list(self.template),
            "parameters": list(self.parameters),
            "launch_bounds": self.launch_bounds,
            "cluster_dims": self.cluster_dims,
            "instances": list(self.instances),
            "launches": [each.to_dict() for each in self.launches],
            "compiles": self.compiles,
            "tried": self.tried,
            "problem": self.problem,
            "target": self.target,
            "notes": list(self.notes),
        }
