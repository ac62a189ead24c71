"""The architectures that can run a rung; its kernel refuses the others before it is compiled."""

from __future__ import annotations

import re
from typing import Any

from tilewise.compiler import Request
from tilewise.errors import LaunchError
from tilewise.kernel import Kernel
from tilewise.launch import DEFAULT_ARCH

_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)")


def check_arch(name: str, needs: str, arch: str) -> None:
    """Raise an error for an architecture that can't run a rung.

    Parameters
    ----------
    name : str
        The name of the rung.
    needs : str
        The architecture from which on it runs, as in ``"sm_80"``, or the only one on which it runs,
        as in ``"sm_90a"``; empty for any.
    arch : str
        The architecture to compile for, or that of a GPU.

    Raises
    ------
    LaunchError
        If the architecture is older than the rung needs, or is not the only one.
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
        The needed architecture, as in :func:`check_arch`.
    *args, **options
        The arguments of :class:`tilewise.Kernel`.
    """

    def __init__(self, needs: str, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.needs = needs

    def request(self, arch: str | None = None, *, lines: bool = True) -> Request:
        """Return the request to the compiler.

        Raises
        ------
        LaunchError
            As in :func:`check_arch`.
        """
        check_arch(self.name, self.needs, arch or DEFAULT_ARCH)
        return super().request(arch, lines=lines)
