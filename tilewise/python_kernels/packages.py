"""The packages that compile kernels written in Python, which are optional."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any


def need(module: str, command: str) -> Any:
    """Import an optional package.

    Parameters
    ----------
    module : str
    command : str
        The command that installs it.

    Raises
    ------
    ImportError
        If it is not installed, with the command that installs it.
    """
    package = module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        raise ImportError(f"{package} is not installed: {command}", name=package)
    return importlib.import_module(module)
