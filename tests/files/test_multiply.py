"""``tilewise.multiply_files`` on small files: what it takes, and what comes of it."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matmul_reference import assert_right

import tilewise
from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.files import memory, multiply, unfinished
from tilewise.files.execute import OnHost
from tilewise.files.npy import MatrixFile, Target
from tilewise.gemm.blocking import Span

Array = np.ndarray[Any, Any]


def drawn(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def product(folder: Path, a: Array, b: Array, **options: Any) -> tuple[Array, Any]:
    np.save(folder / "A.npy", a)
    np.save(folder / "B.npy", b)
    found = tilewise.multiply_files(
        folder / "A.npy", folder / "B.npy", folder / "C.npy",
        **{"device": "host", "check": True, **options},
    )  # fmt: skip
    assert sorted(x.name for x in folder.iterdir()) == ["A.npy", "B.npy", "C.npy"]
    return np.load(folder / "C.npy"), found


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("room", [600, 5_000, 10**6])
def test_it_is_the_product(tmp_path: Path, dtype: str, orders: str, room: int) -> None:
    a, b = drawn(37, 53, dtype=dtype), drawn(53, 29, dtype=dtype)
    a, b = np.asarray(a, order=orders[0]), np.asarray(b, order=orders[1])  # type: ignore[call-overload]
    c, found = product(tmp_path, a, b, memory=room)
    assert_right(c, a, b, dtype)
    assert c.dtype == dtype
    assert c.flags.c_contiguous
    assert found.correct
    assert found.memory <= found.budget == room
    # What was read and written is what the planner said.
    assert found.bytes_read + found.bytes_written == found.bytes_moved >= found.bound
    assert (found.pieces > 1) == (room == 600) or room == 5_000


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0), (1, 1, 1)])
def test_empty_matrices(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = drawn(m, k), drawn(k, n)
    c, found = product(tmp_path, a, b)
    assert np.array_equal(c, a @ b)
    assert found.correct


def test_either_byte_order(tmp_path: Path) -> None:
    a, b = drawn(20, 30), drawn(30, 10)
    c, _ = product(tmp_path, a.astype(">f4"), b, memory=2_000)
    assert c.dtype == np.dtype("=f4")
    assert_right(c, a, b, "float32")


def test_infinity_and_nan_spread(tmp_path: Path) -> None:
    a, b = drawn(9, 9), drawn(9, 9)
    a[2, 3], b[4, 5] = np.inf, np.nan
    c, found = product(tmp_path, a, b, memory=300)
    assert np.isnan(c[:, 5]).all()
    assert np.isinf(c[2, :5]).all()
    assert found.correct


def test_float16_that_overflows(tmp_path: Path) -> None:
    a = np.full((4, 4), 200, np.float16)
    c, found = product(tmp_path, a, a)
    assert np.isinf(c).all()
    assert found.correct


def test_undivided_tiles_are_single_products_bit_for_bit(tmp_path: Path) -> None:
    a, b = drawn(90, 64), drawn(64, 70)
    c, found = product(tmp_path, a, b, memory=20_000)
    assert found.pieces == 1
    assert found.tiles > 1
    for top in range(0, 90, found.block_m):
        for left in range(0, 70, found.block_n):
            rows, columns = slice(top, top + found.block_m), slice(left, left + found.block_n)
            one = np.ascontiguousarray(a[rows]) @ np.ascontiguousarray(b[:, columns])
            assert np.array_equal(c[rows, columns], one)


def test_nothing_is_read_beyond_the_array(tmp_path: Path) -> None:
    a, b = drawn(5, 6), drawn(6, 7)
    np.save(tmp_path / "A.npy", a)
    with (tmp_path / "A.npy").open("ab") as file:
        file.write(b"more")
    np.save(tmp_path / "B.npy", b)
    tilewise.multiply_files(
        tmp_path / "A.npy", tmp_path / "B.npy", tmp_path / "C.npy", device="host"
    )
    assert_right(np.load(tmp_path / "C.npy"), a, b, "float32")


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("it was unpickled",))


@pytest.mark.parametrize(
    ("a", "told"),
    [
        (drawn(3, 4), r"A is 3 x 4 and B is 5 x 2; A must have as many columns as B has rows"),
        (drawn(3, 5, dtype="float64"), "A is float64 and B float32; they must be the same"),
        (drawn(5), r"has the shape \(5,\); a matrix has 2 dimensions"),
        (drawn(1, 3, 5), r"has the shape \(1, 3, 5\)"),
        (np.ones((3, 5), int), "is int64; float16, float32, float64 are supported$"),
        (np.ones((3, 5), "V2"), "no name for bfloat16, so save it as float32"),
        (np.ones((3, 5), complex), "is complex128"),
        (np.array([[Evil()]], dtype=object), "holds Python objects, which are never read"),
    ],
)  # fmt: skip
def test_what_is_no_matrix_for_it_is_refused(tmp_path: Path, a: Array, told: str) -> None:
    with pytest.raises((ValueError, TypeError), match=told):
        product(tmp_path, a, drawn(5, 2))
    assert not (tmp_path / "C.npy").exists()
    assert len(list(tmp_path.iterdir())) == 2


def header(shape: str) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f4", "fortran_order": False, "shape": (3, 5)}
    )
    return file.getvalue().replace(b"(3, 5)", shape.encode())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is no .npy file of numbers: it is empty; write one array with numpy.save"),
        (b"PK\x03\x04 an archive", "it is a zip archive, as numpy.savez and torch.save write it; "),
        (b"\x80\x04\x95", "it is a Python pickle, which is never read; write one array with"),
        (b"1.5 2\r\n3 4\n", "it is text, which numpy.loadtxt reads; write one array"),
        ("zähl".encode() * 12, "it is text"),
        (b"\x7fELF\x02\x01\x00\x00\x00", "it begins with the bytes 7f 45 4c 46 02 01 00 00, and a"),
        (header("(3, 5)")[:4], "it is a .npy file that is cut short"),
        (header("(3, 5)")[:40], "is no .npy file of numbers"),
        (header("(3, 5)") + b"1234" * 14, "is cut short: .* 3 x 5 of float32, 188 bytes, .* 184"),
        (header("(9**9,"), "is no .npy file of numbers"),
        (header("(-3,5)"), "no dimension can be negative"),
    ],
)  # fmt: skip
def test_damaged_files(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "A.npy").write_bytes(content)
    np.save(tmp_path / "B.npy", drawn(5, 2))
    with pytest.raises(ValueError, match=told):
        tilewise.multiply_files(tmp_path / "A.npy", tmp_path / "B.npy", tmp_path / "C.npy")


def test_a_file_that_is_cut_short_while_it_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", drawn(10, 10))
    with MatrixFile(tmp_path / "A.npy", "A") as a:
        with (tmp_path / "A.npy").open("r+b") as file:
            file.truncate(300)
        with pytest.raises(OSError, match="ends at byte 300; it was cut short while it was read"):
            a.load(Span(0, 10), Span(0, 10), np.empty(100, np.float32))
        with pytest.raises(OSError, match="was changed while it was read"):
            a.check_unchanged()


@pytest.mark.parametrize("given", [None, 5, b"A.npy", np.ones((3, 3))])
@pytest.mark.parametrize("name", ["a", "b", "out"])
def test_what_is_no_path(name: str, given: Any) -> None:
    kind = "None" if given is None else f"an? .*{type(given).__qualname__}"
    told = f"^{name} is {kind}; it takes the path of a .npy file, and tilewise.matmul takes arrays"
    with pytest.raises(TypeError, match=told):
        tilewise.multiply_files(**{"a": "A.npy", "b": "B.npy", "out": "C.npy", name: given})


def test_no_file_no_folder_no_matrix(tmp_path: Path) -> None:
    a, c = tmp_path / "A.npy", tmp_path / "C.npy"
    with pytest.raises(FileNotFoundError, match="matrix A: there is no file"):
        tilewise.multiply_files(a, a, c)
    np.save(a, drawn(3, 3))
    with pytest.raises(OSError, match=r"matrix B: .* is a folder"):
        tilewise.multiply_files(a, tmp_path, c)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        tilewise.multiply_files(a, a, tmp_path / "none" / "C.npy")
    with pytest.raises(ValueError, match="is A itself; name another file"):
        tilewise.multiply_files(a, a, a, force=True)
    with pytest.raises(ValueError, match="device is 'tpu'; it takes one of auto, gpu, host"):
        tilewise.multiply_files(a, a, c, device="tpu")
    c.write_text("mine")
    with pytest.raises(FileExistsError, match="is there already; force=True replaces it"):
        tilewise.multiply_files(a, a, c)
    assert c.read_text() == "mine"
    tilewise.multiply_files(a, a, c, force=True, device="host")
    assert np.load(c).shape == (3, 3)


@pytest.mark.parametrize(
    ("given", "size"),
    [(123, 123), ("123", 123), ("4kB", 4000), ("1.5 MiB", 3 << 19), ("2mb", 2 * 10**6)],
)
def test_sizes_of_memory(given: int | str, size: int) -> None:
    assert memory.parse(given) == size


@pytest.mark.parametrize(
    "given", [0, -1, "0GB", "4XB", "GB", "-4GB", "nan", "1e3", "", "9" * 31, 10**18, "900TB"]
)
def test_absurd_sizes_of_memory(given: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "installed", lambda: 10**12)
    with pytest.raises(ValueError, match="memory is"):
        memory.parse(given)


@pytest.mark.parametrize("given", [True, 4.5, None])
def test_what_is_no_size(given: Any) -> None:
    with pytest.raises(TypeError, match="memory is"):
        memory.parse(given)


def test_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.default() > 0
    monkeypatch.setattr(memory, "available", lambda: 10 << 30)
    assert memory.default() == 9 << 30
    monkeypatch.setattr(memory, "available", lambda: 1 << 30)
    assert memory.default() == 3 << 28
    monkeypatch.setattr(memory, "available", lambda: None)
    assert memory.default() == 1 << 30


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("memory", ["20kB", "1MB"])
def test_pieces_go_to_the_gpu(tmp_path: Path, dtype: str, memory: str, gpu: Gpu) -> None:
    assert 0 < gpu.free_memory() < 1 << 50
    a, b = drawn(130, 170, dtype=dtype), np.asfortranarray(drawn(170, 90, dtype=dtype))
    _, found = product(tmp_path, a, b, device="gpu", memory=memory)
    assert (found.device, found.correct) == ("gpu", True)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("memory", [2_000, 10**6])
def test_pieces_go_to_a_device(
    tmp_path: Path, dtype: str, memory: int, emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are added up there where k is divided."""
    monkeypatch.setattr(multiply, "_gpu", lambda *_: emulator)
    a, b = drawn(9, 70, dtype=dtype), np.asfortranarray(drawn(70, 11, dtype=dtype))
    c, found = product(tmp_path, a, b, device="gpu", memory=memory)
    assert found.device == "gpu"
    assert (found.pieces > 1) == (memory < 10**5)
    assert_right(c, a, b, dtype)


def test_memory_of_a_gpu_on_the_host(tmp_path: Path) -> None:
    a = drawn(9, 9)
    with pytest.raises(ValueError, match="max_gpu_memory is for a GPU, and device is 'host'"):
        product(tmp_path, a, a, max_gpu_memory="1GB")


@pytest.mark.parametrize("order", ["C", "F"])
def test_what_is_read_ahead(tmp_path: Path, order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is read but the first pieces, and nothing beyond the file."""
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("this system has no posix_fadvise")
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, at, size, __: asked.append((at, size)))
    a, b = np.asarray(drawn(60, 50), order=order), np.asarray(drawn(50, 40), order=order)
    _, found = product(tmp_path, a, b, memory=4_000)
    assert 0 < sum(size for _, size in asked) <= found.bytes_read
    assert all(at >= 128 and at + size <= 128 + a.nbytes for at, size in asked)


def test_a_wrong_result_is_seen_and_takes_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: Any, a: Array, b: Array, sums: Array, is_first: bool) -> None:
        sums[...] = a @ b * np.float32(1.01)

    monkeypatch.setattr(OnHost, "__call__", wrong)
    for name, x in (("A", drawn(30, 20)), ("B", drawn(20, 30))):
        np.save(tmp_path / f"{name}.npy", x)
    found = tilewise.multiply_files(
        tmp_path / "A.npy", tmp_path / "B.npy", tmp_path / "C.npy", device="host", check=True
    )
    assert not found.correct
    assert "the wrong result is in" in found.notes[-1]
    assert {x.name for x in tmp_path.iterdir()} == {"A.npy", "B.npy", "C.npy.part"}


def test_a_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = drawn(40, 40), drawn(40, 40)
    store, tiles = Target.store, []

    def full(self: Target, rows: Span, columns: Span, piece: Array) -> None:
        tiles.append(rows)
        if len(tiles) == 4:
            raise OSError(errno.ENOSPC, "No space left on device", str(self.path))
        store(self, rows, columns, piece)

    monkeypatch.setattr(Target, "store", full)
    with pytest.raises(OSError, match=r"No space left .*; 3 of \d+ tiles are kept; resume=True"):
        product(tmp_path, a, b, memory=2_000)
    assert not (tmp_path / "C.npy").exists()
    monkeypatch.undo()
    monkeypatch.setattr(np, "save", lambda path, x: None)  # the inputs stay as they are
    c, found = product(tmp_path, a, b, memory=2_000, resume=True)
    assert found.resumed == 3
    assert found.bytes_written < c.nbytes
    assert_right(c, a, b, "float32")


def test_a_disk_with_too_little_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("", (), {"free": 100}))
    with pytest.raises(OSError, match="C takes 6,400 bytes, and the disk has 100 left"):
        product(tmp_path, drawn(40, 40), drawn(40, 40))
    assert len(list(tmp_path.iterdir())) == 2


def test_without_locks_of_the_system_the_file_is_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "lockf", raising=False)
    product(tmp_path, drawn(4, 4), drawn(4, 4))
    (tmp_path / "D.npy.lock").write_text("4711\n")
    a = tmp_path / "A.npy"
    with pytest.raises(unfinished.InUseError, match=r"process 4711 writes .*remove that file"):
        tilewise.multiply_files(a, a, tmp_path / "D.npy")
