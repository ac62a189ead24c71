"""The records of a kernel and of its launches in a list of kernels."""

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
        The line, from 1.
    text : str
        The configuration as the file has it, such as ``"<<<grid, 256>>>"``.
    grid, block : (int, int, int) or None
        The blocks of the grid and the threads of a block, x first; None if they are known only at
        run time.
    """

    file: str
    line: int
    text: str
    grid: Dim3 | None
    block: Dim3 | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "file": self.file,
            "line": self.line,
            "text": self.text,
            "grid": None if self.grid is None else list(self.grid),
            "block": None if self.block is None else list(self.block),
        }


@dataclass(frozen=True)
class ListedKernel:
    """A kernel in a file, or a file that can't be read.

    Attributes
    ----------
    file : str
        The file of the kernel's full name, ``FILE.cu:NAME``.
    source : str
        The file that it is written in, which may be a header of ``file``.
    line : int
        The line, from 1.
    name : str
        The name with its namespaces; empty if the file can't be read.
    template : tuple of str
        The template's parameters with their defaults, as in ``"int TILE = 16"``; empty if it is not
        a template.
    parameters : tuple of str
        The parameters, as in ``"const float* x"``.
    launch_bounds, cluster_dims : str
        The arguments of ``__launch_bounds__`` and ``__cluster_dims__``; empty if it has none.
    instances : tuple of str
        The template's instances that the files themselves use.
    launches : tuple of ListedLaunch
        Its launches in the files' host code, in order.
    tried : str
        The name by which it was compiled: its own, or an instance; empty if it was not compiled.
    problem : str
        Why it does not compile, or why the file can't be read; else empty.
    target : str
        The architecture that PTX is for; empty for CUDA C++.
    notes : tuple of str
        The headers that were not found and were left out of the compilation.
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
        """Whether it compiles; None if it was not compiled."""
        return not self.problem if self.tried else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
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
