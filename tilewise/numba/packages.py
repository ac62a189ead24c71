"""Import Numba with its CUDA target, which are optional."""

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
    if importlib.util.find_spec("numba.cuda.core") is None:
        raise ImportError(
            "numba.cuda is Numba's own CUDA target, not that of numba-cuda, which is installed "
            "where Python does not read its .pth file; install both into site-packages",
            name="numba.cuda",
        )
    return need(module, _COMMAND)
