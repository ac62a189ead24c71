"""A kernel of Numba's, compiled to PTX by Numba and made a compiled kernel of tilewise's."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from tilewise.compiler import Compiled
from tilewise.compiler.ptx.given import given
from tilewise.compiler.ptx.linking import linked, undefined
from tilewise.compiler.ptx.text import split
from tilewise.devices import limits
from tilewise.errors import CompileError
from tilewise.numba import linking, shared_arrays
from tilewise.numba.packages import numba
from tilewise.python_kernels import sources
from tilewise.shown import plural

_lock, _compiling = threading.Lock(), threading.Lock()
_kept: WeakKeyDictionary[Any, dict[tuple[Any, ...], Compiled]] = WeakKeyDictionary()


def types_of(dispatcher: Any, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the Numba types of a kernel's arguments: the declared ones, or the values'.

    Raises
    ------
    TypeError
        If Numba knows no type for a value, or there are more or fewer than parameters.
    """
    code = dispatcher.py_func.__code__
    if len(values) != code.co_argcount:
        raise TypeError(
            f"{dispatcher.__name__} takes {plural(code.co_argcount, 'argument')}, not {len(values)}"
        )
    if dispatcher.specialized:
        return tuple(next(iter(dispatcher.overloads)))
    found = []
    for name, value in zip(code.co_varnames, values, strict=False):
        try:
            found.append(dispatcher.typeof_pyval(value))
        except ValueError as error:  # also Numba's own, which is one
            raise TypeError(f"{dispatcher.__name__}, argument {name}: {error}") from None
    return tuple(found)


def compiled_of(dispatcher: Any, types: tuple[Any, ...], arch: str) -> Compiled:
    """Compile a kernel, or take what was compiled before.

    Raises
    ------
    CompileError
        If Numba does not compile it, what it is linked with has no PTX, or a function that it calls
        is not defined.
    OSError
        If a file that it is linked with can't be read.
    """
    with _lock:
        kept = _kept.setdefault(dispatcher, {})
        found = kept.get((types, arch))
    if found is None:
        found = _compile(dispatcher, types, arch)
        with _lock:
            kept[types, arch] = found
    return found


@contextmanager
def _for(capability: tuple[int, int]) -> Iterator[list[Any]]:
    """Let Numba compile the functions that a kernel calls as it compiles the kernel.

    Numba would compile them for the GPU of this machine, and without their lines. The yielded list
    gets the kernel's library, which Numba does not return, and which knows what has to be linked.
    """
    module, compiler = numba("numba.cuda.dispatcher"), numba("numba.cuda.compiler")
    device, compile_cuda = module.get_current_device, module.compile_cuda
    libraries: list[Any] = []

    def compile_with_lines(*args: Any, **options: Any) -> Any:
        return compile_cuda(*args, **{**options, "lineinfo": True})

    def compile_kernel(*args: Any, **options: Any) -> Any:
        found = compile_cuda(*args, **options)
        libraries.append(found.library)
        return found

    with _compiling:
        compiler.compile_cuda = compile_kernel
        module.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
        module.compile_cuda = compile_with_lines
        try:
            yield libraries
        finally:
            compiler.compile_cuda = compile_cuda
            module.get_current_device, module.compile_cuda = device, compile_cuda


def _compile(dispatcher: Any, types: tuple[Any, ...], arch: str) -> Compiled:
    cuda, errors = numba(), numba("numba.cuda.core.errors")
    nvvm = numba("numba.cuda.cudadrv.error")
    options, function = dispatcher.targetoptions, dispatcher.py_func
    capability = divmod(limits.compute_capability(arch), 10)
    try:
        with _for(capability) as libraries, shared_arrays.noting_arrays() as arrays:
            ptx, _ = cuda.compile(
                function, types, device=False, abi="numba", lineinfo=True, output="ptx",
                cc=capability, fastmath=options.get("fastmath", False),
                opt=options.get("opt", True), launch_bounds=options.get("launch_bounds"),
            )  # fmt: skip
        ptx = linked(ptx, linking.needed(ptx, libraries[-1], options.get("link") or ()))
    except (errors.NumbaError, nvvm.NvvmError, NotImplementedError, CompileError) as error:
        raise CompileError(f"{function.__name__}: {error}") from error
    ptx, shapes = shared_arrays.renamed(ptx, arrays)
    module = split(ptx)
    if (call := undefined(module, module.kernels[0])) is not None:
        raise CompileError(
            f"{function.__name__} calls {call[1]}, which nothing that it is linked with defines; "
            f"link= of cuda.declare_device or of cuda.jit names the file, in which {call[1]} is "
            'extern "C"'
        )
    file = function.__code__.co_filename
    source = sources.shown(file), sources.text(file)
    compiled = given(ptx, arch=arch, source=source)
    return replace(compiled, name=function.__name__, shapes=tuple(shapes.items()))
