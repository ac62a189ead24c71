"""Copies past the processor's caches, by a function of machine code or by NumPy."""

from __future__ import annotations

import mmap
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.host import streaming
from tilewise.host.copiers import Copiers

IS_KNOWN = sys.platform == "linux" and platform.machine() == "x86_64"
needs_function = pytest.mark.skipif(
    not IS_KNOWN or streaming._function() is None, reason="its machine code can't run here"
)


def watched(patch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return the arguments of the function's calls, which go on to it."""
    function = streaming._function()
    found: list[tuple[int, ...]] = []

    def called(*arguments: int) -> None:
        found.append(arguments)
        assert function is not None
        function(*arguments)

    patch.setattr(streaming, "_function", lambda: called)
    return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return the arguments of the function's calls, as :func:`watched` does."""
    return watched(monkeypatch)


@needs_function
@given(
    shape=st.lists(st.integers(1, 5), max_size=2),
    width=st.integers(1, 300),
    dtype=st.sampled_from([np.uint8, np.uint16, np.float32, np.float64]),
    offsets=st.tuples(st.integers(0, 70), st.integers(0, 70)),
    padding=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    turned=st.sampled_from(["neither", "to", "source", "both", "repeated"]),
)
def test_it_copies_these_bytes_and_no_others(
    shape: list[int], width: int, dtype: Any, offsets: Any, padding: Any, turned: str
) -> None:
    """Also if lines lie in reverse order, or one line of the source is repeated."""
    item = np.dtype(dtype).itemsize
    drawn = np.random.default_rng(width)

    def array(offset: int, more: int) -> tuple[Any, Any]:
        pitched = [*shape, width + more]
        size = int(np.prod(pitched)) * item
        space = drawn.integers(0, 256, size + 200, np.uint8)
        return space, np.ndarray(pitched, dtype, space.data, offset)[..., :width]

    space, to = array(offsets[0], padding[0])
    of_source, source = array(offsets[1], padding[1])
    if shape:
        to = to[..., ::-1, :] if turned in ("to", "both") else to
        source = source[..., ::-1, :] if turned in ("source", "both") else source
        if turned == "repeated":
            source = np.broadcast_to(source[..., :1, :], to.shape)
    expected, kept = space.copy(), of_source.copy()
    at = to.ctypes.data - space.ctypes.data
    np.ndarray(to.shape, dtype, expected.data, at, to.strides)[...] = source
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "MIN_LINE_BYTES", 1)
        patch.setattr(streaming, "MIN_CALL_BYTES", 1)
        calls = watched(patch)
        streaming.copy(to, source)
    assert calls
    assert space.tobytes() == expected.tobytes()
    assert of_source.tobytes() == kept.tobytes()


@needs_function
def test_what_the_function_copies(calls: list[tuple[int, ...]]) -> None:
    """Long lines of consecutive bytes of one dtype; NumPy copies all else."""
    matrix = np.random.default_rng(1).random((64, 1024))
    large = np.empty_like(matrix)
    streaming.copy(large, matrix)
    streaming.copy(large[:, 8:], matrix[:, :-8])
    streaming.copy(large.ravel(), matrix.ravel())
    batch = matrix.reshape(2, 32, 1024)
    streaming.copy(np.empty_like(batch), batch)
    assert [call[2:4] for call in calls] == [
        (8192, 64), (8128, 64), (64 * 8192, 1), (8192, 32), (8192, 32),
    ]  # fmt: skip
    calls.clear()
    streaming.copy(large[:, :256], matrix[:, :256])  # short lines
    streaming.copy(large[:4], matrix[:4])  # little
    streaming.copy(np.empty((1024, 64)), matrix.T)  # the columns of a matrix
    streaming.copy(large.T, matrix.T)
    streaming.copy(large.astype(np.float32), matrix)  # another dtype
    streaming.copy(large, matrix[:1])  # one line, broadcast
    streaming.copy(np.empty((0, 1024)), matrix[:0])
    streaming.copy(np.empty(()), np.ones(()))
    words = np.full(matrix.shape, "word", object)
    streaming.copy(np.empty_like(words), words)
    assert (large == matrix[0]).all()
    large.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        streaming.copy(large, matrix)
    assert not calls


@needs_function
def test_threads_copy_by_it(calls: list[tuple[int, ...]]) -> None:
    source = np.random.default_rng(2).random((512, 1024))
    to = np.empty_like(source)
    copiers = Copiers(2)
    try:
        copiers.copy(to, source).wait()
    finally:
        copiers.close()
    assert (to == source).all()
    assert len(calls) == 8


@needs_function
def test_python_ends_while_a_thread_copies() -> None:
    """The code stays mapped, and the file that it is mapped from is open for reading alone."""
    program = """if True:
        import errno, os, threading
        import numpy as np
        from tilewise.host import streaming
        source = np.broadcast_to(np.ones((1, 1 << 20)), (40000, 1 << 20))
        to = np.lib.stride_tricks.as_strided(np.empty(1 << 20), source.shape, (0, 8))
        begun = threading.Event()
        def copy():
            begun.set()
            streaming.copy(to, source)  # some seconds; Python does not wait for it
        streaming._function()
        threading.Thread(target=copy, daemon=True).start()
        begun.wait()
        for file in os.listdir("/proc/self/fd"):
            try:
                if "stream_copy" in os.readlink(f"/proc/self/fd/{file}"):
                    os.pwrite(int(file), b"\\xcc", 0)
            except OSError as error:
                if error.errno == errno.EBADF:
                    print("not open for writing")
    """
    path = {"PYTHONPATH": str(Path(streaming.__file__).parents[2])}
    found = subprocess.run(
        [sys.executable, "-c", program], env=path, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "not open for writing\n", "")


@pytest.mark.parametrize("reason", ["another processor", "no such file", "not executable"])
def test_where_it_cant_run_numpy_copies(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    streaming._function.cache_clear()
    if reason == "another processor":
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    elif reason == "no such file":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    else:

        def refused(*_: object, **__: object) -> None:
            raise PermissionError

        monkeypatch.setattr(mmap, "mmap", refused)
    try:
        assert streaming._function() is None
        source = np.random.default_rng(3).random((64, 1024))
        to = np.empty_like(source)
        streaming.copy(to, source)
        assert (to == source).all()
    finally:
        monkeypatch.undo()
        streaming._function.cache_clear()


def test_its_machine_code_is_that_of_its_text(tmp_path: Path) -> None:
    if not IS_KNOWN or not (shutil.which("as") and shutil.which("objcopy")):
        pytest.skip("there is no assembler for x86-64")
    text = Path(streaming.__file__).with_name("stream_copy.s")
    made, code = tmp_path / "stream_copy.o", tmp_path / "stream_copy.bin"
    subprocess.run(["as", text, "-o", made], check=True)
    subprocess.run(["objcopy", "-O", "binary", "--only-section=.text", made, code], check=True)
    assert code.read_bytes() == streaming.CODE
