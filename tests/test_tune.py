"""``explain`` and ``tune``: what is said, what is measured, and what is kept of it on disk."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import as_if_on_a_gpu
from fake_gpu import FakeGpu
from hypothesis import given
from hypothesis import strategies as st

from tilewise.cli import show
from tilewise.cli.commands.options import gpus
from tilewise.cli.main import main
from tilewise.compiler import ahead
from tilewise.compiler import cache as compiler_cache
from tilewise.devices import Device
from tilewise.devices.emulated import emulator
from tilewise.errors import DeviceUnavailableError
from tilewise.explain import explain
from tilewise.explanation import explain_product, of_shape
from tilewise.gemm import kept
from tilewise.gemm.chip import H200, KNOWN, OLDEST, Chip, known
from tilewise.gemm.families.hopper import kernel as hopper
from tilewise.gemm.families.hopper import model
from tilewise.gemm.families.hopper.readings import readings
from tilewise.gemm.families.hopper.tiling import Tiling
from tilewise.gemm.family import Offer
from tilewise.gemm.plan import best, chip_of, kept_offer, offers, offers_of_piece, plan_on
from tilewise.gemm.product import Operand, Product
from tilewise.kernel import Kernel
from tilewise.lens.roofline import find as ceilings_of
from tilewise.lens.roofline import known as ceilings
from tilewise.matmul import matmul
from tilewise.tune import Timed, Tuned, tune

# `tilewise.tune` and its like are the functions, once the package is imported.
TUNE, EXPLAIN, MATMUL = (sys.modules[f"tilewise.{x}"] for x in ("tune", "explain", "matmul"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own."""
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    plan_on.cache_clear()
    yield tmp_path / "cache"
    plan_on.cache_clear()


@pytest.fixture
def no_gpu(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without one, for arrays on the host."""
    for module in (EXPLAIN, MATMUL):
        monkeypatch.setattr(module, "first_gpu", lambda: None)


def product(m: int = 2048, n: int = 3072, k: int = 1024) -> Product:
    return of_shape(m, n, k, "bfloat16", "NT")


def same(one: Offer | None, other: Offer | None) -> bool:
    """Whether two offers are of one family, and of the same choices and seconds."""
    return (
        one is not None
        and other is not None
        and (one.family, one.choice, one.seconds) == (other.family, other.choice, other.seconds)
    )


def find(asked: Product, on: Chip = H200) -> Tiling | None:
    """The tiling that is kept for a product."""
    entry = kept.find(asked, on)
    if entry is None:
        return None
    family, choice = entry
    assert family == "hopper"
    return Tiling(**choice)


def keep(
    asked: Product, on: Chip, tiling: Tiling, measured: dict[str, float] | None = None
) -> Path | None:
    return kept.keep(asked, on, "hopper", tiling.choice, measured or {})


def files(cache: Path) -> list[Path]:
    return sorted((cache / "tuned").glob("*")) if (cache / "tuned").exists() else []


# explain


def test_explains_the_emulator() -> None:
    a = np.ones((3, 4), np.float32)
    found = explain(a, a, transpose_b=True, device="emulator")
    assert str(found).splitlines() == [
        "D = A·B, m = 3, n = 3, k = 4, float32, layout NT",
        "on            the emulator",
        "by            the general kernel, tiles of 64 x 64",
        "why           no other family takes it: this is no Hopper GPU; this is no GPU of",
        "              compute capability 8.0 or above, whose rates the planner needs",
        "launches      gemm_general: grid 1, 256 threads a block",
        "workspace     none",
        "copied first  a and b to the emulator, and the result back",
    ]
    assert found.to_dict()["launches"] == [
        {
            "kernel": "gemm_general",
            "grid": [1, 1, 1],
            "block": [256, 1, 1],
            "dynamic_shared_bytes": 0,
        }
    ]


@pytest.mark.usefixtures("no_gpu")
def test_explains_a_product_of_numpys_own() -> None:
    a = np.ones((3, 4), np.float16)
    found = explain(a, a.T)
    assert found.chosen == "NumPy's own product"
    assert "no GPU" in found.why
    assert found.steps == ()
    assert "a and b, as float32" in str(found)


@pytest.mark.usefixtures("no_gpu")
def test_explains_a_product_of_torchs_own() -> None:
    torch = pytest.importorskip("torch")
    a = torch.ones(3, 4)
    found = explain(a, a.T)
    assert found.chosen == "PyTorch's own product"
    assert found.copies == ()


def test_explains_the_hopper_kernel() -> None:
    asked = product()
    problem = hopper.problem(asked)
    chosen = model.best([problem], [0.0], H200)
    assert chosen is not None
    tiling, _, expected = chosen
    found = explain_product(asked, H200)
    assert found.offer is not None
    assert (found.offer.family, found.offer.choice) == ("hopper", tiling.choice)
    assert found.seconds == expected
    assert f"the Hopper kernel, {tiling}" in found.chosen
    times = [offer.seconds for offer in found.alternatives]
    assert len(times) == 5
    assert times == sorted(times)
    assert times[0] >= expected
    assert tiling.choice not in [offer.choice for offer in found.alternatives]
    (first, *_) = found.steps
    text = str(found)
    assert f"grid {first.launch.grid[0]}" in text
    assert f"{expected * 1e6:.1f} µs" in text
    assert max(map(len, text.splitlines())) <= 80
    document = json.loads(json.dumps(found.to_dict()))
    assert document["offer"]["family"] == "hopper"
    assert document["offer"]["choice"] == tiling.choice
    assert f"{tiling.stages} stages" in document["offer"]["text"]
    assert document["seconds"] == expected
    assert [x["seconds"] for x in document["alternatives"]] == times


def test_explains_a_workspace_and_repacking() -> None:
    deep = explain_product(of_shape(256, 256, 65536, "float16", "NN"), H200)
    assert deep.workspace > 0
    assert f"{deep.workspace:,} bytes" in str(deep)
    off = explain_product(of_shape(4095, 4097, 4099, "bfloat16", "NN"), H200)
    assert "repacked" in off.chosen
    assert off.offer is not None
    assert isinstance(off.product, Product)
    # What the copy takes is part of what is expected.
    tiling = Tiling(**off.offer.choice)
    (found,) = (x for x in readings(off.product) if len(x.packings) == 2)
    expected = found.seconds + model.seconds_of(tiling, found.problem, H200)
    assert off.seconds == pytest.approx(expected, rel=1e-12)
    assert found.seconds > 1e-6
    assert f"expected      {expected * 1e6:.1f} µs" in str(off)
    assert max(map(len, str(off).splitlines())) <= 80


@pytest.mark.parametrize(("dtype", "how"), [("float32", "without"), ("float64", "by")])
def test_explains_the_kernels_of_other_families(dtype: str, how: str) -> None:
    found = explain_product(of_shape(64, 64, 64, dtype, "TT"), H200)
    assert found.offer is not None
    assert found.offer.family == "simt"
    assert {offer.family for offer in found.alternatives} == {"simt"}
    assert all(offer.seconds > found.offer.seconds for offer in found.alternatives)
    assert f"the kernel {how} tensor cores" in found.chosen
    assert "these should be the fastest" in found.why


def test_explains_nothing_to_do() -> None:
    a = np.ones((0, 4), np.float32)
    found = explain(a, np.ones((4, 3), np.float32), device="emulator")
    assert found.chosen == "nothing"
    assert found.steps == ()


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((np.ones((2, 3)), np.ones((2, 3))), {}),
        ((np.ones((2, 3)), np.ones((3, 2), np.float32)), {}),
        ((np.ones((2, 3)), [[1.0]]), {}),
        ((np.ones((2, 3), np.int32), np.ones((3, 2), np.int32)), {}),
        ((np.ones((2, 3)), np.ones((3, 2))), {"beta": 2}),
        ((np.ones((2, 3)), np.ones((3, 2))), {"alpha": float("nan")}),
        ((np.ones((2, 3)), np.ones((3, 2))), {"device": "abacus"}),
        ((np.ones((2, 3)), np.ones((3, 2))), {"out": np.ones((3, 3))}),
        ((np.ones((2, 3)), np.ones((3, 2))), {"out_dtype": "float16"}),
    ],
)
def test_the_same_errors_as_matmul(arguments: Any, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as of_matmul:
        matmul(*arguments, **options)
    with pytest.raises(of_matmul.type) as of_explain:
        explain(*arguments, **options)
    assert str(of_explain.value) == str(of_matmul.value)


def test_a_gpu_is_a_name() -> None:
    with pytest.raises(TypeError, match="gpu is 4090; it takes the name of a GPU, as 'h200'"):
        explain(np.ones((2, 2)), np.ones((2, 2)), gpu=4090)  # type: ignore[arg-type]


def test_an_argument_that_there_is_not_names_explain() -> None:
    a = np.ones((2, 2))
    with pytest.raises(TypeError, match=r"explain\(\) got an unexpected keyword argument 'gpus'"):
        explain(a, a, gpus="h200")
    with pytest.raises(TypeError, match=r"explain\(\) got an unexpected keyword argument 'gpus'"):
        explain(a, a, offsets=np.array([2]), gpus="h200")


def test_launches_and_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it was compiled")

    monkeypatch.setattr(Kernel, "compile", refuse)
    a = np.ones((3, 4), np.float32)
    explain(a, a.T, device="emulator")
    explain_product(product(), H200)


VIEWS: list[Callable[[Any], Any]] = [
    lambda x: x,
    lambda x: x[:, ::2],
    lambda x: x[::-1],
    lambda x: x.swapaxes(-1, -2).copy().swapaxes(-1, -2),
    lambda x: x[:, :1, :],
    lambda x: np.broadcast_to(x[:1], x.shape),
    lambda x: np.broadcast_to(x[:, :, :1], x.shape),
    lambda x: x.reshape(2, 1, *x.shape[1:]),
]


@given(
    first=st.sampled_from(VIEWS), second=st.sampled_from(VIEWS),
    dtype=st.sampled_from(["float16", "float32"]), has_c=st.booleans(), swapped=st.booleans(),
)  # fmt: skip
def test_explains_what_matmul_asks_for(
    first: Callable[[Any], Any],
    second: Callable[[Any], Any],
    dtype: str,
    has_c: bool,
    swapped: bool,
) -> None:
    a = first(np.ones((2, 6, 6), dtype))
    b = second(np.ones((2, 6, 6), dtype))
    if a.shape[-1] != (b.shape[-1] if swapped else b.shape[-2]):
        return
    c = np.zeros(matmul(a, b, transpose_b=swapped, device="emulator").shape, dtype)
    options: dict[str, Any] = {
        "transpose_b": swapped,
        "device": "emulator",
        **({"beta": 2} if has_c else {}),
    }
    seen: list[Product] = []

    def watched(asked: Product, device: Device) -> Any:
        seen.append(asked)
        return plan_on(asked, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MATMUL, "plan_product", watched)
        matmul(a, b, c, **options)
    assert explain(a, b, c, **options).product == seen[0]


def test_says_what_is_copied() -> None:
    a = np.ones((6, 6), np.float32)
    found = explain(a[::-1], a, a[:, ::-1], beta=1, device="emulator")
    assert [line.split(",")[0] for line in found.copies[:-1]] == ["a", "c"]
    assert found.copies[-1] == "a, b and c to the emulator, and the result back"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"m": 0}, "m is 0"),
        ({"k": -3}, "k is -3"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"layout": "NX"}, "layout is 'NX'"),
    ],
)
def test_a_shape_that_is_none(changes: dict[str, Any], words: str) -> None:
    arguments = {"m": 4, "n": 4, "k": 4, "dtype": "float16", "layout": "NN", **changes}
    with pytest.raises(ValueError, match=words):
        of_shape(**arguments)


def test_numpys_integers_are_sizes() -> None:
    """A product of them is written to JSON, as any other."""
    found = of_shape(*np.array([2, 3, 5]), "float16", "NN")  # type: ignore[call-arg]
    assert found == of_shape(2, 3, 5, "float16", "NN")
    json.dumps(found)


def test_shapes_are_as_their_layout() -> None:
    asked = of_shape(2, 3, 5, "float16", "TN")
    assert (asked.a, asked.b, asked.d) == (Operand(1, 2), Operand(3, 1), Operand(3, 1))
    asked = of_shape(2, 3, 5, "float16", "NT")
    assert (asked.a, asked.b) == (Operand(5, 1), Operand(1, 5))


def test_explain_at_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "-m", "2048", "-n", "3072", "-k", "1024", "--layout", "NT"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.startswith("D = A·B, m = 2,048, n = 3,072, k = 1,024, bfloat16, layout NT\n")
    assert "NVIDIA H200, 132 multiprocessors" in text
    assert main([*words, "--json", "--multiprocessors", "78"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["place"] == "NVIDIA H200, 78 multiprocessors"
    assert document["launches"][0]["grid"][0] <= 78
    found = explain_product(product(), replace(H200, multiprocessors=78))
    assert document == json.loads(json.dumps(found.to_dict()))


def test_the_known_gpus_are_those_whose_ceilings_are_known() -> None:
    """By the same names, and by shorter ones, such as a shell completes."""
    there = {each.name: ceilings_of(each.name) for each in ceilings()}
    assert set(KNOWN) == set(there)
    for name, chip in KNOWN.items():
        assert there[name].arch == f"sm_{chip.capability}"
        assert there[name].multiprocessors in (None, chip.multiprocessors)
    for short in gpus(""):
        assert ceilings_of(short).name == known(short).name
    assert known("rtx4090").name == known("RTX 4090").name == "NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize("name", ["h20", "rtx", "tx4090", ""])
def test_names_of_no_gpu(name: str) -> None:
    for each in (known, ceilings_of):
        with pytest.raises(ValueError, match=r"there are Tesla T4, NVIDIA A100-SXM4-80GB"):
            each(name)


def test_no_gpu_has_more_multiprocessors_than_it_has() -> None:
    with pytest.raises(ValueError, match=r"500 multiprocessors of .*A100.*, which has 108"):
        known("a100", 500)


def test_what_is_taken_though_another_should_be_faster_is_explained() -> None:
    found = explain_product(of_shape(512, 512, 64, "float64", "NN"), known("rtx4090"))
    assert found.seconds is not None
    assert any(each.seconds < found.seconds for each in found.alternatives)
    text = " ".join(str(found).split())
    assert "0.87 times as long: the general kernel" in text
    assert "it is taken where it is 1.20 times as fast" in text
    assert "by its data sheet" in text


def test_arrays_are_explained_for_a_gpu_that_is_not_here() -> None:
    a = np.ones((64, 64), np.float32)
    assert "RTX 3090" in explain(a, a, gpu="rtx3090").place
    with pytest.raises(ValueError, match="one of them says where"):
        explain(a, a, gpu="rtx3090", device="emulator")


def test_an_emulator_has_no_rates() -> None:
    a = np.ones((64, 64), np.float32)
    found = explain(a, a, device=emulator("sm_80"))
    assert "no GPU of compute capability 8.0 or above, whose rates the planner needs" in found.why


def test_a_gpu_without_rates_is_no_emulator() -> None:
    a = np.ones((64, 64), np.float32)
    found = explain(a, a, gpu="t4")
    assert "no GPU of compute capability 8.0 or above, whose rates the planner needs" in found.why
    assert "emulator" not in str(found)


@pytest.mark.parametrize(
    ("gpu", "size", "unit"),
    [("h200", 64, "µs"), ("h200", 20000, "ms"), ("rtx4090", 100_000, "s"), ("h100", 100_000, "s")],
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_times_have_the_unit_that_fits(gpu: str, size: int, unit: str, dtype: str) -> None:
    found = explain_product(of_shape(size, size, size, dtype, "NN"), known(gpu))
    for text in (found.text(), found.why, repr(found), found._repr_html_()):
        times = re.findall(r"([\d,]+\.\d+) (µs|ms|s)\b", text)
        assert {each for _, each in times} <= {unit}
        assert all(float(number.replace(",", "")) < 10_000 for number, _ in times)
    assert re.search(rf"expected +[\d.,]+ {unit}, ", found.text())


@pytest.mark.parametrize("name", KNOWN)
def test_the_explain_command_plans_for_known_gpus(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["explain", "-m", "4096", "-n", "4096", "-k", "4096", "--gpu", name, "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["place"].startswith(KNOWN[name].name)
    kernel = "gemm_hopper" if KNOWN[name].is_hopper else "gemm_mma"
    if KNOWN[name].capability < OLDEST:
        kernel = "gemm_general"
    assert found["launches"][0]["kernel"] in (kernel, kernel.removeprefix("gemm_"))


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "-m", "1", "-n", "1"],
        ["explain", "-m", "0", "-n", "1", "-k", "1"],
        ["explain", "-m", "1", "-n", "1", "-k", "1", "--dtype", "int8"],
        ["explain", "-m", "1", "-n", "1", "-k", "1", "--multiprocessors", "0"],
        ["tune", "-m", "1", "-n", "1", "-k", "0"],
        ["tune", "-m", "1", "-n", "1", "-k", "1", "--seconds", "0"],
        ["tune", "-m", "1", "-n", "1", "-k", "1", "--dtype", "int8"],
    ],
)
def test_bad_command_lines(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_if_on_a_gpu(monkeypatch)
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("tilewise: ")
    assert main([*words, "--json"]) == 2
    assert "error" in json.loads(capsys.readouterr().out)


# What is kept


def test_pieces_take_what_is_kept_unless_it_divides_k() -> None:
    """The bits of a piece are those of the whole product, whose k nobody divides."""
    asked = product()
    first, *others = offers_of_piece(asked, H200)
    whole = next(x for x in others if not x.divides_k and x.choice != first.choice)
    divided = next(x for x in others if x.divides_k)
    for winner, expected in ((whole, whole), (divided, first)):
        kept.keep(asked, H200, winner.family, winner.choice, {})
        try:
            found = offers_of_piece(asked, H200)[0]
            assert (found.family, found.choice) == (expected.family, expected.choice)
        finally:
            kept.forget(asked, H200)


def test_keeps_and_finds_again(cache: Path) -> None:
    asked, tiling = product(), Tiling(64, 48, swapped=True)
    assert find(asked, H200) is None
    path = keep(asked, H200, tiling, {"seconds": 1e-6})
    assert files(cache) == [path]
    assert find(asked, H200) == tiling
    keep(asked, H200, Tiling(128, 128))
    assert find(asked, H200) == Tiling(128, 128)
    kept.forget(asked, H200)
    assert files(cache) == []
    kept.forget(asked, H200)


def test_one_file_for_each_product_and_gpu() -> None:
    asked = product()
    keep(asked, H200, Tiling(64, 48))
    changes: list[dict[str, Any]] = [
        {"m": 2049}, {"n": 8}, {"k": 8}, {"batch": 2}, {"dtype": "float16"},
        {"out_dtype": "float32"}, {"a": Operand(1032, 1)}, {"a": Operand(1024, 1, 0, 8)},
        {"b": Operand(3072, 1)}, {"d": Operand(1, 2048)},
        {"beta": 1.0, "c": Operand(3072, 1)},
    ]  # fmt: skip
    for change in changes:
        assert find(asked._replace(**change), H200) is None, change
    assert find(asked, Chip("NVIDIA H100", 132)) is None
    assert find(asked, Chip("NVIDIA H200", 78)) is None
    # Neither is read, and no launch is another for it.
    assert find(asked._replace(alpha=2.0), H200) == Tiling(64, 48)
    assert find(asked._replace(c=Operand(3072, 1)), H200) == Tiling(64, 48)


def test_other_sources_find_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(product(), H200, Tiling(64, 48))
    monkeypatch.setattr(kept, "_sources", lambda: "of another version")
    assert find(product(), H200) is None


def test_a_settled_folder_is_listed_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_listed", {})
    monkeypatch.setattr(kept, "_UNSEEN", 0.0)
    listed, listdir = [], os.listdir

    def count(folder: str) -> list[str]:
        listed.append(folder)
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", count)
    asked, tiling, folder = product(), Tiling(64, 48, swapped=True), cache / "tuned"
    assert find(asked, H200) is None  # there is no folder yet
    path = keep(asked, H200, tiling)
    assert path is not None
    for _ in range(2):  # another process may change it in the same tick of its clock
        assert find(asked, H200) == tiling
    assert listed == [str(folder)] * 2
    os.utime(folder, ns=(1, 1))
    for _ in range(3):
        assert find(asked, H200) == tiling
        assert find(product(m=77), H200) is None
    assert len(listed) == 3
    kept.forget(asked, H200)
    assert find(asked, H200) is None


def test_the_folder_is_looked_at_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """But what this process keeps is found at once."""
    looked, look = [], kept._names_in

    def count(folder: str) -> frozenset[str]:
        looked.append(folder)
        return look(folder)

    now = [100.0]
    monkeypatch.setattr(kept, "_names_in", count)
    monkeypatch.setattr(kept, "_lately", {})
    monkeypatch.setattr(kept, "_now", lambda: now[0])
    asked, tiling = product(), Tiling(64, 48)
    for _ in range(3):
        assert find(asked, H200) is None
    assert len(looked) == 1
    path = keep(asked, H200, tiling)
    assert path is not None
    assert find(asked, H200) == tiling
    path.rename(path.with_suffix(".other"))  # as another process may
    assert len(looked) == 2
    now[0] += kept._UNSEEN
    assert find(asked, H200) is None
    assert len(looked) == 3


def test_what_is_kept_while_a_thread_lists_the_folder_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look, asked, tiling = kept._names_in, product(), Tiling(64, 48)
    held: list[object] = []

    def slow(folder: str) -> frozenset[str]:
        names = look(folder)
        if not held:
            held.append(keep(asked, H200, tiling))  # as another thread does
        return names

    monkeypatch.setattr(kept, "_names_in", slow)
    monkeypatch.setattr(kept, "_lately", {})
    monkeypatch.setattr(kept, "_now", lambda: 100.0)
    assert find(asked, H200) is None
    assert find(asked, H200) == tiling


def test_the_sources_are_there() -> None:
    root = Path(kept.__file__).parents[1]
    assert all((root / name).exists() for name in kept._SOURCES)
    assert len(kept._sources()) == 64


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[: len(data) // 2],
        lambda _: b"",
        lambda _: b"\xff\xfe",
        lambda _: b"[1, 2]",
        lambda _: b"{}",
        lambda data: data.replace(b'"block_m": 64', b'"block_m": 128'),
        lambda data: data.replace(b'"block_m"', b'"block_x"'),
        lambda data: data.replace(b'"check"', b'"cheque"'),
    ],
)
def test_a_spoilt_file_is_ignored(spoil: Callable[[bytes], bytes]) -> None:
    path = keep(product(), H200, Tiling(64, 48))
    assert path is not None
    path.write_bytes(spoil(path.read_bytes()))
    assert find(product(), H200) is None
    assert same(explain_product(product(), H200).offer, best(product(), H200))


def test_a_place_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write_bytes(b"a file, where a folder should be")
    assert keep(product(), H200, Tiling(64, 48)) is None
    assert find(product(), H200) is None
    kept.forget(product(), H200)
    monkeypatch.setattr(compiler_cache, "directory", lambda: None)
    assert keep(product(), H200, Tiling(64, 48)) is None
    assert find(product(), H200) is None
    kept.forget(product(), H200)


def test_a_write_that_fails_leaves_what_was_there(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(product(), H200, Tiling(64, 48))

    def refuse(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", refuse)
    assert keep(product(), H200, Tiling(128, 128)) is None
    assert find(product(), H200) == Tiling(64, 48)
    assert len(files(cache)) == 1


def test_many_may_write_at_once(cache: Path) -> None:
    asked = product()
    written = [Tiling(64, 16 * i) for i in range(1, 9)]
    keep(asked, H200, written[0])
    running = threading.Event()
    running.set()
    wrong: list[Tiling | None] = []

    def read() -> None:
        while running.is_set():
            found = find(asked, H200)
            if found not in written:
                wrong.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    writers = [
        threading.Thread(
            target=lambda tiling=tiling: [keep(asked, H200, tiling) for _ in range(25)]
        )
        for tiling in written
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    running.clear()
    reader.join()
    assert wrong == []
    assert len(files(cache)) == 1


def test_the_planner_takes_the_winner() -> None:
    asked = product()
    usual = plan_on(asked, H200)
    winner = offers(asked, H200)[3]
    kept.keep(asked, H200, winner.family, winner.choice, {})
    assert plan_on(asked, H200) is usual  # the files are looked at once a process
    plan_on.cache_clear()
    plan = plan_on(asked, H200)
    assert winner.family == "hopper"
    assert plan.chosen == winner.words != usual.chosen
    assert "measured" in plan.why
    assert plan_on(asked, Chip("NVIDIA H200", 78)).chosen != plan.chosen
    found = explain_product(asked, H200)
    assert found.offer is not None
    assert (found.offer.family, found.offer.choice) == (winner.family, winner.choice)
    assert found.seconds == pytest.approx(winner.seconds, rel=1e-12)
    assert same(found.alternatives[0], best(asked, H200))
    assert winner.choice not in [offer.choice for offer in found.alternatives]


# tune


def test_tune_takes_numpys_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Looked(Exception):
        pass

    def looked(_: object) -> None:
        raise Looked

    monkeypatch.setattr(TUNE, "_gpu", looked)
    with pytest.raises(Looked):
        tune(tuple(np.array([4, 4, 4])))
    with pytest.raises(TypeError, match=r"\(4, 4\) is no product; give \(m, n, k\), or \(a, b\)"):
        tune((4, 4))


@pytest.mark.parametrize(
    ("products", "options", "error"),
    [
        ([], {}, ValueError),
        ([(1, 2)], {}, TypeError),
        ([7], {}, TypeError),
        ([(1, 2, 3, 4)], {}, TypeError),
        ([(1.5, 2, 3)], {}, TypeError),
        ([(0, 2, 3)], {}, ValueError),
        ([(4, 4, 4), (4, 4, 0)], {}, ValueError),
        ([(4, 4, 4)], {"dtype": "int8"}, ValueError),
        ([(4, 4, 4)], {"layout": "nn"}, ValueError),
        ([(4, 4, 4)], {"seconds": float("inf")}, ValueError),
        ([(4, 4, 4)], {"seconds": "1"}, TypeError),
        ([(np.ones((2, 3)), np.ones((2, 3)))], {}, ValueError),
    ],
)
def test_tune_checks_before_it_looks_for_a_gpu(
    products: list[Any], options: dict[str, Any], error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(TUNE, "_gpu", lambda _: pytest.fail("a GPU was looked for"))
    with pytest.raises(error):
        tune(*products, **options)


def test_tune_needs_a_gpu(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    if device.name == "gpu":
        pytest.skip("there is one")
    pytest.importorskip("torch")
    with pytest.raises(DeviceUnavailableError):
        tune((64, 64, 64))
    assert main(["tune", "-m", "64", "-n", "64", "-k", "64"]) == 2
    told = capsys.readouterr().err
    assert "--device emulator" not in told
    assert "doctor" in told


def test_tune_needs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TUNE, "first_gpu", FakeGpu)
    monkeypatch.setattr("tilewise.bench.record.importlib.util.find_spec", lambda _: None)
    with pytest.raises(ImportError, match="pip install torch"):
        tune((64, 64, 64))


def measured(*seconds: float, correct: bool = True) -> Tuned:
    """As measured: the model's choice took the first time; fastest first."""
    choices = offers(product(), H200)[: len(seconds)]
    rows = [Timed(offer, time, correct) for offer, time in zip(choices, seconds, strict=True)]
    rows.sort(key=lambda row: row.seconds or 0)
    return Tuned(product(), H200, tuple(rows), choices[0])


def test_a_winner_by_more_than_two_percent_is_kept() -> None:
    found = TUNE._keep(measured(1.03e-5, 1.1e-5, 1e-5), 1.03e-5)
    assert found.kept is not None
    assert same(found.kept, offers(product(), H200)[2])
    assert kept.find(product(), H200) == (found.kept.family, found.kept.choice)
    assert found.kept.words in plan_on(product(), H200).chosen
    # Measured again, with another outcome.
    again = TUNE._keep(measured(1.01e-5, 1.1e-5, 1e-5), 1.01e-5)
    assert again.kept is None
    assert "stays" in again.note
    assert kept.find(product(), H200) is None
    assert again.chosen.words in plan_on(product(), H200).chosen


def test_says_where_nothing_can_be_kept(cache: Path) -> None:
    cache.write_bytes(b"a file")
    found = TUNE._keep(measured(2e-5, 1e-5), 2e-5)
    assert found.kept is None
    assert "can't be written" in found.note


def test_the_table_and_the_dictionary(capsys: pytest.CaptureFixture[str]) -> None:
    found = TUNE._keep(measured(2e-5, 1e-5, 3e-5), 2e-5)
    show.tuned(found)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    rows = [line.split() for line in text.splitlines() if "tiles of" in line][:3]
    assert [row[:2] for row in rows] == [["10.00", "2.000"], ["20.00", "1.000"], ["30.00", "0.667"]]
    assert "(the model's choice)" in text.replace("\n", " ")
    assert "kept, and taken by matmul from now on" in text
    document = json.loads(json.dumps(found.to_dict()))
    assert [row["ratio"] for row in document["offers"]] == [2, 1, pytest.approx(2 / 3)]
    assert [row["kept"] for row in document["offers"]] == [True, False, False]
    assert [row["chosen"] for row in document["offers"]] == [False, True, False]
    assert document["kept"]["family"] == found.rows[0].offer.family
    assert document["kept"]["choice"] == found.rows[0].offer.choice
    assert document["chip"] == asdict(H200)


def test_a_wrong_result_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tuple(replace(row, seconds=None) for row in measured(1e-5, 2e-5, correct=False).rows)
    wrong = replace(measured(1e-5, 2e-5), rows=rows, note="a result is wrong: nothing is kept")
    assert not wrong.correct
    monkeypatch.setattr(TUNE, "tune", lambda *_, **__: [wrong])
    as_if_on_a_gpu(monkeypatch)
    assert main(["tune", "-m", "8", "-n", "8", "-k", "8"]) == 1
    assert "WRONG" in capsys.readouterr().out
    assert main(["tune", "-m", "8", "-n", "8", "-k", "8", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["correct"] is False


@pytest.mark.parametrize("out", ["bfloat16", "float32"])
def test_results_are_compared_row_by_row(out: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    m, n, k = 96, 4096, 512
    a, b = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()
    exact = a.double() @ b.double()
    right = exact.to(getattr(torch, out))
    asked = of_shape(m, n, k, "bfloat16", "NN")._replace(out_dtype=out)
    # Summed in another order, in float32.
    near = (a[:, 256:].float() @ b[256:].float() + a[:, :256].float() @ b[:256].float()).to(
        right.dtype
    )
    assert TUNE._is_near(near[None], right[None], asked)
    one_off = right.clone()
    one_off[7, 1234] += 4 * k**0.5
    assert not TUNE._is_near(one_off[None], right[None], asked)
    short = (a[:, 64:].double() @ b[64:].double()).to(right.dtype)
    assert not TUNE._is_near(short[None], right[None], asked)
    unwritten = right.clone()
    unwritten[-1, -1] = float("nan")
    assert not TUNE._is_near(unwritten[None], right[None], asked)


def test_kernels_are_compiled_ahead(tmp_path: Path, cache: Path) -> None:
    source = tmp_path / "own.cu"
    source.write_text('extern "C" __global__ void fill(int* x) { x[threadIdx.x] = VALUE; }\n')
    kernels = [Kernel(source, "fill", {"VALUE": value}) for value in (1, 2, "no number")]
    done: list[int] = []
    ahead.compile_ahead(kernels, "sm_90", lambda: done.append(1))
    assert len(done) == 3
    entries = [path for path in (cache / "entries").rglob("*") if path.is_file()]
    assert len(entries) == 2
    kernels[0].compile("sm_90")
    assert len([path for path in (cache / "entries").rglob("*") if path.is_file()]) == 2


# On a Hopper GPU


@pytest.fixture
def torch(device: Device) -> Any:
    """PyTorch, on a Hopper GPU."""
    if device.name != "gpu" or not device.arch.startswith("sm_90"):
        pytest.skip("needs a Hopper GPU: pytest --device gpu")
    return pytest.importorskip("torch", reason="torch is not installed")


def assert_right(torch: Any, a: Any, b: Any) -> None:
    """By the bound of the benchmark, and the same bits twice."""
    from tilewise.bench.products import error_share

    result = matmul(a, b)
    assert error_share(a, b, result) <= 1
    assert torch.equal(result, matmul(a, b))


def test_tunes_a_product(torch: Any, device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    a = torch.randn(256, 320, device="cuda").bfloat16()
    b = torch.randn(192, 320, device="cuda").bfloat16().T
    assert_right(torch, a, b)
    words = ["tune", "-m", "256", "-n", "192", "-k", "320", "--layout", "NT", "--seconds", "0.2"]
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    times = [row["seconds"] for row in document["offers"]]
    asked = of_shape(256, 192, 320, "bfloat16", "NT")
    assert len(times) == min(TUNE.CANDIDATES, len(offers(asked, chip_of(device)))) > 10
    assert times == sorted(times)
    assert 1e-7 < times[0] < times[-1] < 1e-3
    found = kept_offer(asked, chip_of(device))
    assert (found is None) == (document["kept"] is None)
    if found is not None:
        assert document["kept"]["text"] == found.words
        assert found.words in explain(a, b).chosen
    assert_right(torch, a, b)


def test_matmul_takes_the_winner(torch: Any, device: Device) -> None:
    a = torch.randn(300, 640, device="cuda").bfloat16()
    b = torch.randn(640, 328, device="cuda").bfloat16()
    assert_right(torch, a, b)
    asked = explain(a, b).product
    assert isinstance(asked, Product)
    chip = chip_of(device)
    assert chip is not None
    first, second = offers(asked, chip)[:2]
    found = TUNE._keep(Tuned(asked, chip, (Timed(second, 1e-6, True),), first), 2e-6)
    assert found.kept is second
    assert second.words in explain(a, b).chosen
    assert_right(torch, a, b)


def test_tunes_arrays_as_they_lie(torch: Any, device: Device) -> None:
    wide = torch.randn(1100, 1101, device="cuda").bfloat16()
    a, b = wide[:, 1:], wide[:, :-1]  # neither begins, or steps, by 16 bytes
    c = torch.randn(2, 128, 256, device="cuda").half()
    off, batch = tune((a, b), (c, c[0].T), seconds=0.1)
    assert off.correct
    assert batch.correct
    assert off.product == explain(a, b).product
    assert batch.rows
    assert len(off.rows) == min(TUNE.CANDIDATES, len(offers(off.product, off.chip))) > 10
    assert_right(torch, a, b)


def test_matrices_lie_as_the_product_has_them(torch: Any) -> None:
    asked = of_shape(5, 6, 7, "float16", "NT")._replace(
        batch=3, a=Operand(9, 1, 50, 2), b=Operand(1, 8, 0, 8), d=Operand(1, 5, 30, 4),
        out_dtype="float32",
    )  # fmt: skip
    generator = torch.Generator("cuda").manual_seed(0)
    a, b, d = TUNE._matrices(asked, generator)
    assert (a.stride(), b.stride(), d.stride()) == ((50, 9, 1), (0, 1, 8), (30, 1, 5))
    assert (a.shape, b.shape, d.shape) == ((3, 5, 7), (3, 7, 6), (3, 5, 6))
    assert [x.data_ptr() % 16 for x in (a, b, d)] == [2, 8, 4]
    assert [x.dtype for x in (a, b, d)] == [torch.float16, torch.float16, torch.float32]


def test_tunes_every_dtype(torch: Any) -> None:
    for dtype in ("float32", "float64"):
        (found,) = tune((64, 64, 64), dtype=dtype, seconds=0.1)
        assert found.correct
        assert {"simt", "general"} <= {row.offer.family for row in found.rows}
        assert found.chosen_seconds is not None


def test_nothing_to_tune(torch: Any) -> None:
    a, b = torch.empty(0, 64, device="cuda"), torch.empty(64, 64, device="cuda")
    (found,) = tune((a, b), seconds=0.1)
    assert found.rows == ()
    assert "nothing to tune: the result has no elements" in found.note
