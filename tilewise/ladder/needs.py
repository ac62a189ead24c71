"""Which architectures can run a rung: its kernel refuses the others before the compiler sees it."""

from __future__ import annotations

import re
from typing import Any

from tilewise.compiler import Request
from tilewise.errors import LaunchError
from tilewise.kernel import Kernel
from tilewise.launch import DEFAULT_ARCH

_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)")


def check_arch(name: str, needs: str, arch: str) -> None:
    """Refuse an architecture that can't run a rung.

    Parameters
    ----------
    name : str
        The rung's.
    needs : str
        The architecture from which on it runs, as ``"sm_80"``, or the only one on which it does, as
        ``"sm_90a"``; empty where any will do.
    arch : str
        What it is to be compiled for, or what a GPU is.

    Raises
    ------
    LaunchError
        If it is older than what the rung needs, or another than the only one.
    """
    wanted, found = _ARCH.fullmatch(needs), _ARCH.fullmatch(arch)
    if wanted is None or found is None:
        return
    is_alone = bool(wanted[3])
    if arch == needs if is_alone else int(found[1] + found[2]) >= int(wanted[1] + wanted[2]):
        return
    capability = f"compute capability {wanted[1]}.{wanted[2]}"
    most = f"{capability} and no other ({needs})" if is_alone else f"{capability} or later"
    raise LaunchError(
        f"{name} needs {most}, and this is {arch}; an emulator of {needs} runs it on any machine"
    )


class RungKernel(Kernel):
    """A rung's kernel.

    Parameters
    ----------
    needs : str
        As :func:`check_arch` takes it.
    *args, **options
        As :class:`tilewise.Kernel` takes them.
    """

    def __init__(self, needs: str, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.needs = needs

    def request(self, arch: str | None = None, *, lines: bool = True) -> Request:
        """Return what the compiler is asked for.

        Raises
        ------
        LaunchError
            As :func:`check_arch`.
        """
        check_arch(self.name, self.needs, arch or DEFAULT_ARCH)
        return super().request(arch, lines=lines)
