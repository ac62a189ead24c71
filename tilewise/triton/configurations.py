"""Choose the configuration of an autotuned kernel, without timing any."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tilewise.triton.packages import triton


def with_configuration(
    kernel: Any, config: Any, args: Sequence[Any], meta: Mapping[str, Any]
) -> Any:
    """Return the kernel with one configuration if it is autotuned; the caller's does not change.

    Parameters
    ----------
    kernel : triton.JITFunction, triton.runtime.Autotuner or triton.runtime.Heuristics
    config : triton.Config, int or None
        The configuration; None for the first one that the kernel's pruning leaves.
    args, meta
        The arguments of the launch.

    Raises
    ------
    TypeError
        If it is not a kernel of Triton's, or ``config`` is given and it is not autotuned.
    ValueError
        If it has no such configuration.
    """
    runtime = triton("triton.runtime")
    autotuner = triton("triton.runtime.autotuner")
    if isinstance(kernel, runtime.JITFunction):
        if config is not None:
            raise TypeError(f"config is {config!r}, but {kernel.__name__} is not autotuned")
        return kernel
    if not isinstance(kernel, autotuner.Autotuner | autotuner.Heuristics):
        raise TypeError(
            f"kernel is {kernel!r}; it takes what @triton.jit gives (and that not under "
            "TRITON_INTERPRET=1, with which Triton compiles nothing)"
        )
    found = copy.copy(kernel)
    if isinstance(kernel, autotuner.Autotuner):
        found.configs = [_chosen(found, config, args, meta)]
        config = None
    if isinstance(found.fn, autotuner.Autotuner | autotuner.Heuristics) or config is not None:
        found.fn = with_configuration(found.fn, config, args, meta)
    return found


def _chosen(kernel: Any, config: Any, args: Sequence[Any], meta: Mapping[str, Any]) -> Any:
    """Return one of an autotuned kernel's configurations."""
    if isinstance(config, triton().Config):
        return config
    if config is not None:
        if isinstance(config, bool) or not isinstance(config, int):
            raise TypeError(f"config is {config!r}; it takes a triton.Config or its place, an int")
        if not 0 <= config < len(kernel.configs):
            raise ValueError(
                f"config is {config}; {kernel.base_fn.__name__} has configurations 0 to "
                f"{len(kernel.configs) - 1}"
            )
        return kernel.configs[config]
    kernel.nargs = dict(zip(kernel.arg_names, args, strict=False))
    return next(iter(kernel.prune_configs(dict(meta))))
