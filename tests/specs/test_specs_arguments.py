"""Arguments that are written as text: what they become, and what is said of wrong ones."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from signatures import SOURCE

from tilewise.compiler import Compiled
from tilewise.kernel import Kernel
from tilewise.specs.arguments import Arguments, names_of, parse


def compiled(name: str) -> Compiled:
    return Kernel(SOURCE, name).compile()


def parsed(name: str, *texts: str, **more: Any) -> Arguments:
    return parse(compiled(name), texts, **more)


def array(found: Arguments, name: str) -> np.ndarray[Any, Any]:
    (argument,) = (x for x in found.each if x.name == name)
    assert argument.plan is not None
    made = argument.plan.make()
    assert (made.shape, made.dtype) == (argument.plan.shape, argument.plan.dtype)
    assert made.flags.c_contiguous
    assert made.flags.writeable
    return made


def test_by_position_and_by_name() -> None:
    for texts in (
        ("1000", "2.5", "zeros:n", "ones:n"),
        ("n=1000", "a=2.5", "x=zeros:n", "y=ones:n"),
        ("1000", "a=2.5", "y=ones:1000", "x=zeros:1<<3"),
        ("0=1000", "1=2.5", "2=zeros:n", "3=ones:n"),
    ):
        found = parsed("saxpy", *texts)
        assert found.numbers == {"n": 1000, "a": 2.5}
        assert array(found, "y").tolist() == [1.0] * 1000
        assert array(found, "x").dtype == np.float32


def test_numbers_may_be_of_other_numbers_in_any_order() -> None:
    found = parsed("transpose", "random:mxn", "empty:n,m", "m=n//2", "n=40")
    assert found.numbers == {"m": 20, "n": 40}
    assert [x.plan.shape for x in found.arrays if x.plan] == [(20, 40), (40, 20)]
    with pytest.raises(ValueError, match="is not known before this one's"):
        parsed("transpose", "zeros:4", "zeros:4", "m=n", "n=m")
    with pytest.raises(ValueError, match="m stands for no number"):
        parsed("transpose", "zeros:4", "zeros:4", "m=m+1", "n=4")


def test_every_kind_of_value() -> None:
    found = parsed(
        "many", "true", "-5", "100", "0xffffffff", "1<<40", "1/4", "1,2,3,4", "struct:ifd:1,2.5,3",
        "arange:4", "null", "empty:10",
    )  # fmt: skip
    values = [x.value for x in found.each]
    assert values[:6] == [True, -5, 100, 0xFFFFFFFF, 1 << 40, 0.25]
    assert values[6] == np.array([1, 2, 3, 4], np.float32).tobytes()
    assert values[7] == struct.pack("ifd", 1, 2.5, 3)
    assert array(found, "q").tolist() == np.arange(16.0).reshape(4, 4).tolist()
    assert values[9] is None
    assert found.each[10].plan is not None
    assert found.each[10].plan.is_empty


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("zeros:2x3", np.zeros((2, 3), np.float32)),
        ("ones:6:float32", np.ones(6, np.float32)),
        ("full:4:1/2", np.full(4, 0.5, np.float32)),
        ("arange:2,2", np.array([[0, 1], [2, 3]], np.float32)),
        ("zeros:0", np.zeros(0, np.float32)),
        ("full:2:nan", np.full(2, np.nan, np.float32)),
    ],
)
def test_arrays_that_are_made(text: str, wanted: np.ndarray[Any, Any]) -> None:
    made = array(parsed("saxpy", "n=1", "a=1", f"x={text}", "y=zeros:1"), "x")
    np.testing.assert_array_equal(made, wanted, strict=True)


def test_random_numbers() -> None:
    def drawn(text: str, seed: int = 0, name: str = "x") -> np.ndarray[Any, Any]:
        return array(parsed("saxpy", "1", "1", f"x={text}", f"y={text}", seed=seed), name)

    first = drawn("random:10000")
    assert abs(first.mean()) < 0.05
    assert abs(first.std() - 1) < 0.05
    assert (first == drawn("random:10000")).all()
    assert (first != drawn("random:10000", seed=1)).any()
    assert (first != drawn("random:10000", name="y")).any()
    assert (drawn("random:9:seed=3") == drawn("random:9:seed=3", seed=5, name="y")).all()
    even = drawn("random:10000:low=2:high=4")
    assert 2 <= even.min() < 2.1
    assert 3.9 < even.max() <= 4
    whole = array(parsed("histogram", "random:n", "10000", "zeros:256"), "data")
    assert whole.dtype == np.uint8
    assert (whole.min(), whole.max()) == (0, 99)
    few = array(parsed("histogram", "random:n:low=5:high=7", "100", "zeros:256"), "data")
    assert set(few.tolist()) == {5, 6}


def test_files(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "d.npy", x.astype(np.float64))
    np.save(tmp_path / "big.npy", x.astype(">f4"))
    np.savez(tmp_path / "both.npz", p=x, q=x + 1)
    for text, wanted in (
        ("x.npy", x), ("d.npy:float32", x), ("big.npy", x), ("both.npz:q", x + 1),
    ):  # fmt: skip
        found = parsed("saxpy", "6", "1", f"x={tmp_path / text}", "y=zeros:6")
        np.testing.assert_array_equal(array(found, "x"), wanted, strict=True)
        assert found.files == (tmp_path / text.partition(":")[0],)
    cast = parsed("saxpy", "6", "1", f"x={tmp_path / 'd.npy'}", "y=zeros:6", is_cast=True)
    np.testing.assert_array_equal(array(cast, "x"), x, strict=True)
    made = array(cast, "x")
    made[:] = 7  # what is made is a copy each time
    np.testing.assert_array_equal(array(cast, "x"), x)


GOOD = ("n=8", "a=2", "x=zeros:8", "y=zeros:8")


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (("1", "2"), "saxpy(int n, float a, const float* x, float* y) takes 4 arguments; x, y are"),
        ((*GOOD, "z=3"), "saxpy has no parameter 'z'; it has n, a, x, y"),
        (("1", "2", "zeros:1", "zeros:1", "5"), "and 5 are given: '5' is too many"),
        (("n=8", "2", "zeros:8", "zeros:8"), "'2' has no name, and stands behind"),
        ((*GOOD, "n=9"), "argument n is given twice"),
        ((*GOOD[:3], "yy=zeros:8"), "no parameter 'yy'; did you mean y? The kernel has n, "),
        (("n=1<<31", *GOOD[1:]), "n (int) is 1<<31 = 2147483648, which does not fit int: it takes"),
        (("n=1.5", *GOOD[1:]), "argument n (int) is '1.5' = 1.5; it takes a whole number"),
        (("n=eight", *GOOD[1:]), "eight stands for no number"),
        (("n=zeros:8", *GOOD[1:]), "argument n (int) takes a number, and 'zeros:8' is an array"),
        (("n=8", "a=1e39", *GOOD[2:]), "is beyond the range of a 32-bit float"),
        ((*GOOD[:3], "y=8"), "argument y (float*) is 8, a number; float* takes zeros:SHAPE"),
        ((*GOOD[:3], "y=zeros"), "has no shape; write zeros:SHAPE[:DTYPE]"),
        ((*GOOD[:3], "y=zero:8"), "which is no array; did you mean zeros? It takes zeros:"),
        ((*GOOD[:3], "y=zeros:8:float64"), "is float64, and float* takes float32"),
        (
            (*GOOD[:3], "y=zeros:8:float"),
            "no dtype; did you mean float32? There are bool",
        ),
        ((*GOOD[:3], "y=zeros:-8"), "a size must be at least 0"),
        ((*GOOD[:3], "y=zeros:8:float32:3"), "'3' is not understood; write zeros:SHAPE[:DTYPE]"),
        ((*GOOD[:3], "y=zeros:8:seed=3"), "'seed' is not understood"),
        ((*GOOD[:3], "y=full:8"), "has no value; write full:SHAPE:VALUE[:DTYPE]"),
        ((*GOOD[:3], "y=random:8:low=3:high=1"), "low is 3 and high is 1; low must be below"),
        ((*GOOD[:3], "y=random:8:low=0:high=inf"), "low is 0 and high is inf; low must be below"),
        ((*GOOD[:3], "y=random:8:low=0:high=1e39"), "1e+39 is beyond the largest float32"),
        ((*GOOD[:3], "y=full:8:-1e39"), "-1e+39 is beyond the largest float32"),
        ((*GOOD[:3], "y=full:8:1e400"), "it has a number beyond the largest float64"),
        ((*GOOD[:3], f"y=full:8:1{'0' * 400}"), "0', which is beyond the largest float64"),
        ((*GOOD[:3], "y=random:8:seed=-1"), "seed is -1; it must be an integer from 0"),
        ((*GOOD[:3], "y=there/is/none.npy"), "there is no file there/is/none.npy"),
        ((*GOOD[:3], "y=data.bin"), "argument y (float*) is 'data.bin', which is no array"),
    ],
)
def test_what_is_wrong_is_said(texts: tuple[str, ...], told: str) -> None:
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=re.escape(told)):
        parsed("saxpy", *texts)


@pytest.mark.parametrize(
    ("index", "text", "told"),
    [
        (0, "2", "argument b (bool) is 2, which does not fit bool: it takes 0 to 1"),
        (1, "300", "argument c (char) is 300, which does not fit char: it takes -128 to 255"),
        (3, "-1", "argument u (unsigned int) is -1, which does not fit unsigned int: it takes 0"),
        (6, "1,2,3", "argument v (float4) is '1,2,3'; it takes 4 numbers with commas"),
        (7, "3", "it takes a structure of 16 bytes, as struct:FORMAT:VALUE,VALUE"),
        (7, "struct:if:3", "the format has 2 values, and 1 are given"),
        (7, "struct:if:3,4", "takes a struct of 16 bytes, not one of 8 bytes"),
        (7, "hex:0g", "non-hexadecimal number"),
        (9, "zeros:3", "void* does not say of what; add a dtype, as zeros:3:float32"),
    ],
)
def test_numbers_and_structures_that_do_not_fit(index: int, text: str, told: str) -> None:
    texts = ["1", "1", "1", "1", "1", "1", "1,1,1,1", f"hex:{'00' * 16}", "zeros:2", "null",
             "zeros:10"]  # fmt: skip
    texts[index] = text
    with pytest.raises((ValueError, TypeError), match=re.escape(told)):
        parsed("many", *texts)


def test_files_that_are_wrong(tmp_path: Path) -> None:
    def told(name: str) -> str:
        with pytest.raises((ValueError, TypeError, OSError)) as caught:
            parsed("saxpy", "1", "1", f"x={tmp_path / name}", "y=zeros:1")
        return str(caught.value)

    np.save(tmp_path / "d.npy", np.zeros(3))
    assert f"{tmp_path / 'd.npy'} is float64, and float* takes float32" in told("d.npy")
    assert f"{tmp_path / 'd.npy'}:float32 converts it, and --cast all files" in told("d.npy")
    np.save(tmp_path / "f.npy", np.asfortranarray(np.zeros((3, 4), np.float32)))
    assert "is stored column by column, and a kernel gets rows" in told("f.npy")
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    assert "holds no array of numbers" in told("o.npy")
    (tmp_path / "t.npy").write_text("text")
    assert "t.npy is no .npy file of numbers: it is text, which numpy.loadtxt" in told("t.npy")
    (tmp_path / "e.npy").touch()
    assert "e.npy is no .npy file of numbers: it is empty; write" in told("e.npy")
    np.savez(tmp_path / "z.npz", p=np.zeros(3, np.float32))
    assert "is an archive: say which; it has p" in told("z.npz")
    assert "'q' is not in" in told("z.npz:q")
    (tmp_path / "s.npy").mkdir()
    assert "is a folder" in told("s.npy")
    np.save(tmp_path / "l.npy", np.array([1.0, 1e300]))
    assert "has 1e+300 at [1], which float32 does not hold" in told("l.npy:float32")
    np.save(tmp_path / "m.npy", np.array([[1.0, 2.0], [3.0, 1e300]]))
    assert "has 1e+300 at [1][1], which float32 does not hold" in told("m.npy:float32")
    np.save(tmp_path / "d.npy", np.array(1e300))
    assert "has 1e+300, which float32 does not hold" in told("d.npy:float32")
    np.save(tmp_path / "i.npy", np.array([1, 300]))
    with pytest.raises(ValueError, match=re.escape("has 300 at [1], which uint8 does not hold")):
        parsed("histogram", f"{tmp_path / 'i.npy'}:uint8", "1", "zeros:256")


def test_arrays_that_no_machine_holds_are_refused_before_they_are_made() -> None:
    with pytest.raises(MemoryError, match="the arrays and their copies take"):
        parsed("saxpy", "1", "1", "x=zeros:1<<45", "y=zeros:1")
    with pytest.raises(MemoryError, match="more than a machine can address"):
        parsed("saxpy", "1", "1", "x=zeros:1<<100", "y=zeros:1")


def test_nothing_is_made_before_all_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "zeros", lambda *_, **__: pytest.fail("an array was made"))
    monkeypatch.setattr("tilewise.devices.virtual.zeros", np.empty)
    parsed("saxpy", "n=8", "a=2", "x=zeros:8", "y=zeros:8")


def test_without_bfloat16_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "importlib.import_module", lambda name: (_ for _ in ()).throw(ImportError(name))
    )
    with pytest.raises(ValueError, match="pip install ml_dtypes"):
        parsed("saxpy", "n=8", "a=2", "x=zeros:8:bfloat16", "y=zeros:8")


UNNAMED = 'extern "C" __global__ void k(int, float* x, float*, int arg0) {}'


def test_parameters_without_a_name_are_called_by_their_places() -> None:
    of = Kernel(UNNAMED, "k").compile()
    assert names_of(of) == ["_arg0", "x", "arg2", "arg0"]
    found = parse(of, ["8", "zeros:_arg0", "2=zeros:arg0", "arg0=4"])
    assert found.numbers == {"_arg0": 8, "arg0": 4}
    assert [x.plan.shape for x in found.arrays if x.plan] == [(8,), (4,)]
    for texts in (("8", "zeros:8", "arg2=null", "3=1"), ("0=8", "1=zeros:8", "2=null", "3=1")):
        assert parse(of, texts).numbers == {"_arg0": 8, "arg0": 1}
    for wrong in ("4=1", "12345=1", "\u0663=1", "arg9=1"):
        with pytest.raises(ValueError, match=r"k has no parameter '.* has _arg0, x, arg2, arg0"):
            parse(of, ["8", "zeros:8", "null", wrong])
    with pytest.raises(ValueError, match="argument x is given twice"):
        parse(of, ["8", "zeros:8", "1=null"])
