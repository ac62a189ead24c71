"""``tilewise warm``: the kernels that it compiles are those that calls ask for later."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewise
from tilewise import compiler
from tilewise.cli.main import main
from tilewise.compiler import ahead, nvrtc
from tilewise.errors import DeviceUnavailableError
from tilewise.explanation import of_groups, of_shape
from tilewise.gemm.chip import H200, Chip
from tilewise.gemm.plan import plan_on
from tilewise.kernel import Kernel

WARM = sys.modules["tilewise.warm"]
H200_AS_80 = Chip("sm_80", H200.multiprocessors, 80)  # no GPU is here
SIZES = ["-m", "8", "-m", "300", "-n", "200", "-k", "500", "--dtype", "float32", "--layout", "NT"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "cache"
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(place))
    monkeypatch.setattr(WARM, "first_gpu", lambda: None)
    compiler.forget()
    return place


def kernels(*sizes: tuple[int, int, int], dtype: str, layout: str) -> dict[str, Kernel]:
    plans = [plan_on(of_shape(*size, dtype, layout), H200) for size in sizes]
    return {repr(step.kernel): step.kernel for plan in plans for step in plan.steps}


def test_nothing_compiles_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []
    sizes = [(8, 200, 500), (300, 200, 500)]
    found = tilewise.warm(
        sizes, dtypes=["float32"], layouts=["NT"], step=lambda *counts: steps.append(counts)
    )
    asked = kernels(*sizes, dtype="float32", layout="NT")
    assert (found.arch, found.chip, found.ok) == ("sm_90a", "NVIDIA H200", True)
    assert found.kernels == found.compiled == len(asked)
    assert steps == [(done, len(asked)) for done in range(len(asked) + 1)]
    monkeypatch.setattr(nvrtc, "run", None)
    compiled = [kernel.compile("sm_90a", lines=False) for kernel in asked.values()]
    assert found.bytes > sum(len(each.cubin) for each in compiled)

    again = tilewise.warm(sizes, dtypes=["float32"], layouts=["NT"])
    assert (again.kernels, again.compiled, again.bytes) == (found.kernels, 0, found.bytes)


def test_all_of_a_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def none(waiting: Sequence[Kernel], arch: str, *_: Any, **options: Any) -> list[str]:
        asked.extend([len(waiting), arch, options["lines"]])
        return [f"{kernel.name}: not today" for kernel in waiting]

    monkeypatch.setattr(ahead, "compile_ahead", none)
    found = tilewise.warm(dtypes=["float64"], arch="sm_90a")
    assert asked == [found.kernels, "sm_90a", False]
    assert found.kernels > 5
    assert found.compiled == found.bytes == 0
    assert len(found.failures) == found.kernels
    tilewise.warm(dtypes=["float64", "float32"])
    assert asked[3] > found.kernels


@pytest.mark.thorough
def test_other_gpus() -> None:
    found = tilewise.warm([(64, 64, 64)], dtypes=["float16"], layouts=["NN"], arch="sm_80")
    assert (found.arch, found.chip, found.kernels, found.ok) == ("sm_80", "sm_80", 1, True)
    hopper = tilewise.warm([(64, 64, 64)], dtypes=["float16"], layouts=["NN"], arch="sm_90")
    assert (hopper.arch, hopper.chip, hopper.ok) == ("sm_90a", "NVIDIA H200", True)
    old = tilewise.warm([(64, 64, 64)], dtypes=["float16"], layouts=["NN"], arch="sm_75")
    assert (old.chip, old.kernels, old.ok) == ("any GPU", 1, True)


@pytest.mark.parametrize(
    ("asked", "compiled", "capability"), [("sm_100", "sm_100a", "10.0"), ("sm_90", "sm_90a", "9.0")]
)
def test_which_architecture_is_compiled_and_why_is_told(
    asked: str, compiled: str, capability: str, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["warm", "-m", "8", "-n", "8", "-k", "8", "--dtype", "float64", "--layout", "NN"]
    assert main([*small, "--arch", asked]) == 0
    said = " ".join(capsys.readouterr().out.split())
    why = (
        f"{asked} was asked for: on a GPU of compute capability {capability}, matmul takes kernels "
        f"for {compiled}, which has every instruction of that GPU"
    )
    assert f"for {compiled}" in said
    assert f"of {compiled}" not in said
    assert why in said
    assert main([*small, "--arch", asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["asked"], document["arch"], document["why_arch"]) == (asked, compiled, why)
    assert main([*small, "--arch", compiled]) == 0
    assert "was asked for" not in capsys.readouterr().out


def test_at_the_command_line(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    assert main(["warm", *SIZES]) == 0
    first = capsys.readouterr().out
    assert "NVIDIA H200, for sm_90a" in first
    assert str(cache) in first
    assert main(["warm", *SIZES, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True
    assert document["compiled"] == 0
    assert document["kernels"] == len(
        kernels((8, 200, 500), (300, 200, 500), dtype="float32", layout="NT")
    )
    assert document["folder"] == str(cache)
    assert f"{document['bytes'] / 2**20:.1f} MiB" in first


def test_what_does_not_compile_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "bad.cu"
    path.write_text('extern "C" __global__ void bad() { nothing; }\n')
    good = tmp_path / "good.cu"
    good.write_text('extern "C" __global__ void good() {}\n')
    both = [Kernel(path, "bad"), Kernel(good, "good")]
    monkeypatch.setattr(WARM, "every_kernel", lambda *_: both)
    assert main(["warm"]) == 1
    said = capsys.readouterr()
    assert "bad: CompileError: " in said.err
    assert "nothing" in said.err
    assert "2 kernels" in said.out
    assert main(["warm", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert (document["kernels"], document["compiled"], len(document["failures"])) == (2, 0, 1)


def test_a_cache_that_is_a_file_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "file"))
    assert main(["warm", "-m", "8", "-n", "8", "-k", "8", "--dtype", "float64"]) != 0
    assert f"{tmp_path / 'file'}, the cache's folder, can't be made: " in capsys.readouterr().err


@pytest.mark.parametrize("size", [(8, 8), 8, (8, 8, 8, 8)])
def test_a_size_that_is_none_is_told(size: Any) -> None:
    told = r"sizes has .*; each of them is m, n and k of a product, or what explain returns"
    with pytest.raises(ValueError, match=told):
        tilewise.warm([size], dtypes=["float64"])


def test_sizes_that_are_not_iterable() -> None:
    with pytest.raises(TypeError, match=r"sizes is 8; it takes products, as in \[\(m, n, k\)\]"):
        tilewise.warm(8)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"groups is 8; it takes numbers of groups, as in \[8\]"):
        tilewise.warm([(8, 8, 8)], groups=8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        ({"dtypes": "float32"}, TypeError, "dtypes is 'float32'; it takes a list, as in ['float1"),
        ({"dtypes": 5}, TypeError, "dtypes is 5; it takes a list, as in ['float16']"),
        ({"layouts": "NT"}, TypeError, "layouts is 'NT'; it takes a list, as in ['NN']"),
        ({"sizes": None, "layouts": ["NT"]}, ValueError, "layouts is for given products; give siz"),
        ({"sizes": None, "groups": [8], "layouts": ["NT"]}, ValueError, "give sizes too"),
    ],
)
def test_dtypes_and_layouts_that_are_none(
    how: dict[str, Any], error: type[Exception], told: str, cache: Path
) -> None:
    with pytest.raises(error, match=re.escape(told)):
        tilewise.warm(**{"sizes": [(8, 8, 8)], **how})
    assert not cache.exists()  # nothing was begun


def test_no_layouts_are_no_kernels() -> None:
    assert tilewise.warm([(8, 8, 8)], layouts=[]).kernels == 0


def test_dtypes_and_layouts_may_be_iterators() -> None:
    sizes = [(8, 8, 8), (16, 16, 16)]
    lists = tilewise.warm(sizes, dtypes=["float32"], layouts=["NN"])
    found = tilewise.warm(sizes, dtypes=iter(["float32"]), layouts=iter(["NN"]))
    assert found.kernels == lists.kernels > 0


@pytest.mark.parametrize(
    ("workers", "error", "told"),
    [
        ("x", TypeError, "workers is 'x'; it takes a number of threads, or None"),
        (1.5, TypeError, "workers is 1.5; it takes a number of threads, or None"),
        (True, TypeError, "workers is True; it takes a number of threads, or None"),
        (0, ValueError, "workers is 0; it must be at least 1"),
        (-1, ValueError, "workers is -1; it must be at least 1"),
    ],
)
def test_workers_that_are_no_number_of_threads(
    workers: Any, error: type[Exception], told: str, cache: Path
) -> None:
    with pytest.raises(error, match=told):
        tilewise.warm([(8, 8, 8)], dtypes=["float64"], layouts=["NN"], workers=workers)
    assert not cache.exists()  # nothing was begun


def test_a_cache_that_keeps_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ahead, "compile_ahead", lambda *_, **__: [])
    found = tilewise.warm([(8, 8, 8)], dtypes=["float64"], layouts=["NN"])
    assert not found.ok
    assert "disk full" in found.failures[0]
    assert (found.compiled, found.before) == (0, 0)
    main(["warm", "-m", "8", "-n", "8", "-k", "8", "--layout", "NN"])
    assert "0 compiled in" in (said := capsys.readouterr().out)
    assert ", 0 in the cache before" in said


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "8"],
        ["-m", "8", "-n", "8", "-k", "0"],
        ["-m", "8", "-n", "8", "-k", "x"],
        ["--layout", "NN"],
        ["--dtype", "int8"],
        ["--arch", "sm_1"],
        ["--arch", "hopper"],
    ],
)
def test_bad_command_lines(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", *words]) == 2
    assert capsys.readouterr().err.startswith("tilewise: ")
    assert main(["warm", *words, "--json"]) == 2
    assert "error" in json.loads(capsys.readouterr().out)


def test_what_this_machine_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("TILEWISE_CACHE_DIR", str(place))
        assert main(["warm", *SIZES]) == 2
        assert "tilewise: " in capsys.readouterr().err
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert main(["warm", *SIZES]) == 2
    assert "can't be written" in capsys.readouterr().err

    def missing(*_: Any) -> None:
        raise DeviceUnavailableError("NVRTC can't be loaded")

    monkeypatch.setattr(compiler, "architectures", missing)
    assert main(["warm", *SIZES]) == 2
    assert "NVRTC" in capsys.readouterr().err


# Grouped products, and products as explain tells them

GROUPED = [
    (of, offsets, layout)
    for offsets in ("int32", "int64")
    for of, layout in (("m", "NN"), ("m", "NT"), ("k", "TN"))
]


def test_grouped_products_and_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tilewise.warm([(64, 32, 16)], groups=[4], dtypes=["float32"])
    assert found.ok
    monkeypatch.setattr(nvrtc, "run", None)
    kernels = set()
    for of, offsets, layout in GROUPED:
        m, n, k = (64, 32, 16) if of == "m" else (16, 32, 64)
        product = of_groups(m, n, k, 4, "float32", layout, of=of, offset_dtype=offsets)
        for step in plan_on(product, H200).steps:
            step.kernel.compile("sm_90a", lines=False)
            kernels.add(f"{step.kernel!r}")
    assert found.kernels == found.compiled == len(kernels) == 4


def listed(monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """What would be compiled, where nothing is."""
    asked: list[Kernel] = []

    def none(waiting: Sequence[Kernel], arch: str, *_: Any, **__: Any) -> list[str]:
        asked.extend(waiting)
        return [f"{kernel.name}: not today" for kernel in waiting]

    monkeypatch.setattr(ahead, "compile_ahead", none)
    return asked


def test_groups_of_16_bits_on_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = listed(monkeypatch)
    for arch, chip, name in (
        ("sm_90a", H200, "hopper_grouped"), ("sm_80", H200_AS_80, "grouped_mma"),
    ):  # fmt: skip
        asked.clear()
        tilewise.warm([(4096, 2048, 64)], groups=[8], dtypes=["bfloat16"], arch=arch)
        assert {kernel.name for kernel in asked} == {name}
        names = {repr(kernel) for kernel in asked}
        for of, offsets, layout in GROUPED:
            given: Any = {"of": of, "offset_dtype": offsets}
            products = [of_groups(4096, 2048, 64, 8, "bfloat16", layout, **given)]
            if of == "m":
                turned = "NT" if layout == "NN" else "NN"
                products += [of_groups(4096, 64, 2048, 8, "bfloat16", turned, **given)]
            else:
                products = [of_groups(64, 2048, 4096, 8, "bfloat16", **given)]
                products += [of_groups(2048, 64, 4096, 8, "bfloat16", **given)]
            for product in products:
                assert {repr(step.kernel) for step in plan_on(product, chip).steps} <= names


def test_all_that_groups_can_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = listed(monkeypatch)
    assert main(["warm", "--groups", "8", "--dtype", "bfloat16"]) == 1
    assert {kernel.name for kernel in asked} == {"hopper_grouped"}
    few = len(asked)
    asked.clear()
    assert main(["warm", "--groups", "8", "--groups", "999", "--dtype", "bfloat16"]) == 1
    assert len(asked) == 2 * few
    assert main(["warm", "--groups", "0"]) == 2


def test_a_product_that_explain_tells_with_its_epilogue(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, bias = (np.ones(shape, np.float32) for shape in ((40, 24), (24, 16), (16,)))
    told = tilewise.explain(
        a, b, gpu="h200", epilogue=lambda acc, bias: tilewise.gelu(acc + bias), bias=bias
    )
    groups = tilewise.explain(
        a, np.ones((2, 24, 16), np.float32), offsets=np.array([8, 40]), gpu="h200",
        epilogue=lambda acc, bias: acc * bias, bias=bias,
    )  # fmt: skip
    found = tilewise.warm([told, groups])
    assert (found.ok, found.kernels) == (True, len(told.steps) + len(groups.steps))
    monkeypatch.setattr(nvrtc, "run", None)
    for step in (*told.steps, *groups.steps):
        assert step.kernel.defines["EPILOGUE"]
        step.kernel.compile("sm_90a", lines=False)


@pytest.mark.parametrize(
    ("groups", "error"), [([], ValueError), ([0], ValueError), ([1.5], TypeError)]
)
def test_a_number_of_groups_that_is_none(groups: list[Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="groups"):
        tilewise.warm([(8, 8, 8)], groups=groups, dtypes=["float64"])
