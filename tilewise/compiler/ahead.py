"""Kernels compiled before they are needed, several at a time.

NVRTC compiles one source at a time in a process, so this takes more of them; the cache on disk
brings back what they made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from tilewise.compiler import compile
from tilewise.errors import TilewiseError

WORKERS = 16


class Source(Protocol):
    """A kernel of a file: :class:`tilewise.Kernel` is one."""

    path: Path | None
    name: str
    defines: dict[str, Any]
    options: Any


def compile_ahead(
    kernels: Sequence[Source], arch: str, done: Callable[[], object] = lambda: None
) -> None:
    """Compile kernels into the cache on disk.

    What does not compile, or can't be kept, is left to whoever asks for it.

    Parameters
    ----------
    kernels : sequence of Source
        Of files.
    arch : str
    done : callable
        Called as each kernel is done, from any thread.
    """
    workers = max(1, min(WORKERS, os.cpu_count() or 1, len(kernels)))
    with ThreadPoolExecutor(workers) as pool:
        for at in range(workers):
            pool.submit(_in_a_process, kernels[at::workers], arch, done)


def _in_a_process(kernels: Sequence[Source], arch: str, done: Callable[[], object]) -> None:
    asked = [
        [str(kernel.path), kernel.name, kernel.defines, kernel.options, arch] for kernel in kernels
    ]
    # It finds the same packages as this one.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked))
        process.stdin.close()
        for _ in process.stdout:
            done()


def _main() -> None:
    for path, name, defines, options, arch in json.load(sys.stdin):
        try:
            source = Path(path).read_text(encoding="utf-8-sig")
            compile(source, name, defines=defines, arch=arch, path=Path(path), options=options)
        except (TilewiseError, OSError, ValueError) as error:
            print(type(error).__name__, flush=True)
        else:
            print("compiled", flush=True)


if __name__ == "__main__":
    _main()
