"""Import Triton, which is optional."""

from __future__ import annotations

from typing import Any

from tilewise.python_kernels.packages import need


def triton(module: str = "triton") -> Any:
    """Import Triton, or one of its modules.

    Raises
    ------
    ImportError
        If it is not installed.
    """
    return need(module, "pip install tilewise[triton]")
