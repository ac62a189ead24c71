"""Numba with its CUDA target, which are optional."""

from __future__ import annotations

import importlib.util
from typing import Any

from tilewise.python_kernels.packages import need

_COMMAND = "pip install tilewise[numba]"


def numba(module: str = "numba.cuda") -> Any:
    """Import Numba's CUDA target, or one of its modules.

    Raises
    ------
    ImportError
        If Numba or its CUDA target is not installed.
    """
    need("numba", _COMMAND)
    if importlib.util.find_spec("numba_cuda") is None:
        raise ImportError(f"numba_cuda is not installed: {_COMMAND}", name="numba_cuda")
    return need(module, _COMMAND)
