"""A driver for Triton that launches what it compiled on one of tilewise's devices.

Triton itself binds the arguments, specialises and compiles; of a driver it asks for which GPU to
compile, and hands it each launch.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np

from tilewise.compiler import Compiled, symbols
from tilewise.compiler.ptx.given import given
from tilewise.devices import Device, limits
from tilewise.errors import CompileError, LaunchError
from tilewise.launch import Launch, LaunchReport, dim3
from tilewise.python_kernels import sources
from tilewise.python_kernels.launching import launch_named
from tilewise.triton.packages import triton
from tilewise.triton.values import flattened, number

_ACTIVE = threading.RLock()


@contextmanager
def activated(driver: Driver) -> Iterator[None]:
    """Make ``driver`` Triton's driver in this process, as long as the context lasts.

    Raises
    ------
    CompileError, LaunchError
        In place of Triton's own errors of compiling and launching.
    """
    config = triton("triton.runtime.driver").driver
    compilation, errors = triton("triton.compiler.errors"), triton("triton.runtime.errors")
    with _ACTIVE:
        before = getattr(config, "_active", None)
        config.set_active(driver)
        try:
            yield
        except compilation.CompilationError as error:
            raise CompileError(_placed(error)) from error
        except errors.PTXASError as error:
            raise CompileError(str(error).strip()) from error
        except errors.OutOfResources as error:
            raise LaunchError(str(error)) from error
        finally:
            config.set_active(before)


@contextmanager
def unknown_names() -> Iterator[None]:
    """Make Triton's error of an argument that a kernel does not have a ``TypeError``.

    Raises
    ------
    TypeError
    """
    try:
        yield
    except KeyError as error:
        if "unrecognised" not in str(error):
            raise
        raise TypeError(str(error.args[0])) from None


def _placed(error: Any) -> str:
    """Return Triton's message on a mistake in a kernel, with its file and line.

    Triton gives only the line within the function's text; the innermost one of several is where the
    mistake is.
    """
    while isinstance(error.__cause__, type(error)) and error.__cause__.src is not None:
        error = error.__cause__
    said = str(error).strip()
    line = getattr(error.node, "lineno", 0)
    for function in _functions(error.__traceback__):
        if function.src == error.src:
            file = sources.shown(function.file_name)
            return (
                f"{file}:{function.def_file_line_number + line - 1}: {said.partition(chr(10))[2]}"
            )
    return said


def _functions(found: TracebackType | None) -> Iterator[Any]:
    """Yield the functions of Triton's that were being compiled where an error was raised."""
    while found is not None:
        for value in found.tb_frame.f_locals.values():
            for each in (value, getattr(value, "fn", None), getattr(value, "jit_fn", None)):
                if hasattr(each, "def_file_line_number") and hasattr(each, "src"):
                    yield each
        found = found.tb_next


class Driver:
    """Triton's driver for a device.

    Parameters
    ----------
    device : Device
    checks : str
    global_races : bool

    Attributes
    ----------
    reports : list of LaunchReport
        The reports of the launches so far.
    """

    def __init__(self, device: Device, checks: str, global_races: bool) -> None:
        self.device, self.checks, self.global_races = device, checks, global_races
        self.reports: list[LaunchReport] = []
        self.utils = _Utils(device.arch)
        self.launcher_cls = Launcher

    def get_current_target(self) -> Any:
        """Return the target to compile for."""
        target = triton("triton.backends.compiler").GPUTarget
        return target("cuda", limits.compute_capability(self.device.arch), 32)

    def get_current_device(self) -> str:
        """Return the key of Triton's compiled kernels, which is none of a GPU that it
        knows itself.
        """
        return f"tilewise {self.device.name} {self.device.arch}"

    def get_current_stream(self, device: object) -> int:
        """Return the one stream that there is."""
        return 0

    def get_active_torch_device(self) -> Any:
        """Return the device for the tensors of programs."""
        torch = __import__("torch")
        return torch.device("cuda" if self.device.name == "gpu" else "cpu")

    def get_benchmarker(self) -> Any:
        """Return a benchmark for autotuning in which no configuration is faster than the first."""
        return lambda kernel_call, *, quantiles=(0.5,), **_: [0.0] * len(quantiles)

    def map_python_to_cpp_type(self, kind: str) -> str:
        """Return the type as it is, since no launcher is compiled."""
        return kind


class _Utils:
    """The properties of a GPU that Triton and its programs query."""

    def __init__(self, arch: str) -> None:
        self._arch = arch

    def get_device_properties(self, device: object) -> dict[str, int]:
        return {
            "max_shared_mem": limits.max_shared(self._arch),
            "max_num_regs": 65536,
            "multiprocessor_count": 132,
            "warpSize": 32,
        }

    def load_binary(self, name: str, code: bytes, shared: int, device: object) -> tuple[Any, ...]:
        """Return no module and no function, since nothing is loaded; registers, spills,
        most threads.
        """
        return None, name, symbols.registers(code, name), 0, limits.MAX_THREADS

    def unload_module(self, module: object) -> None:
        """Do nothing, since nothing was loaded."""


class Launcher:
    """The launcher of one compiled kernel.

    Parameters
    ----------
    src : triton.compiler.ASTSource
    metadata : namedtuple
        The metadata that Triton keeps of the compilation.
    """

    def __init__(self, src: Any, metadata: Any) -> None:
        self._src, self._metadata = src, metadata
        self._compiled: Compiled | None = None

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, packed: Any,
        launch_metadata: Any, enter: Any, leave: Any, *args: Any,
    ) -> None:  # fmt: skip
        driver: Driver = triton("triton.runtime.driver").driver.active
        if not grid_x * grid_y * grid_z:
            return
        metadata = self._metadata
        ctas = getattr(metadata, "num_ctas", 1)
        grid = dim3((grid_x * ctas, grid_y, grid_z), "grid")
        compiled = self._found(driver)
        args, names = self._arguments(driver.device, compiled, args, math.prod(grid))
        launch = Launch(
            grid, (32 * metadata.num_warps, 1, 1), args, metadata.shared, driver.checks,
            global_races=driver.global_races,
            cooperative=bool(getattr(metadata, "launch_cooperative_grid", False)),
        )  # fmt: skip
        report = launch_named(driver.device, compiled, launch, names)
        driver.reports.append(report)

    def _arguments(
        self, device: Device, compiled: Compiled, args: tuple[Any, ...], blocks: int
    ) -> tuple[tuple[Any, ...], list[str]]:
        """Return the values for the kernel's parameters, and their names."""
        signature = self._src.signature
        described = getattr(self._metadata, "tensordesc_meta", None)
        maps = iter(described) if described else None
        flat = [
            found
            for (name, kind), value in zip(signature.items(), args, strict=True)
            for found in flattened(kind, value, name, maps)
        ]
        own = compiled.parameters[: len(flat)]
        values: list[Any] = [
            value if kind.startswith(("*", "tensordesc")) else number(kind, value, parameter)
            for (kind, value, _), parameter in zip(flat, own, strict=True)
        ]
        names = [name for _, _, name in flat]
        # Behind the kernel's own parameters Triton adds memory that it uses itself.
        for what, _ in zip(("global", "profile"), compiled.parameters[len(flat) :], strict=False):
            size = blocks * (getattr(self._metadata, f"{what}_scratch_size", 0) or 0)
            values.append(device.empty((size,), np.uint8) if size else None)
            names.append(f"Triton's {what} scratch memory")
        return tuple(values), names

    def _found(self, driver: Driver) -> Compiled:
        """Return what Triton compiled, from its cache of kernels for this device."""
        if self._compiled is None:
            kernels = self._src.fn.device_caches[driver.get_current_device()][0].values()
            kernel = next(each for each in kernels if each.metadata is self._metadata)
            self._compiled = compiled_of(
                kernel, self._src.fn, driver.device.arch, runs=driver.device.name == "gpu"
            )
        return self._compiled


def compiled_of(kernel: Any, function: Any, arch: str, *, runs: bool) -> Compiled:
    """Return a kernel that Triton compiled, as tilewise's devices take it.

    Parameters
    ----------
    kernel : triton.compiler.CompiledKernel
    function : triton.JITFunction
    arch : str
    runs : bool
        Whether its machine code runs, on a GPU.
    """
    file = function.file_name
    source = sources.shown(file), sources.text(file)
    found = given(kernel.asm["ptx"], kernel.metadata.name, arch=arch, source=source)
    # Triton's own machine code has wrong lines for inline assembly: it runs, and is not read.
    return replace(found, cubin=kernel.asm["cubin"]) if runs or not found.cubin else found
