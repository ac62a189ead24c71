"""benchmarks/invariant.py: what needs no GPU, and all of it on tiny products."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripts import script

from tilewise.bench.suites import COLUMNS, ROWS, Shape
from tilewise.gemm.chip import H200
from tilewise.gemm.plan import kernels_of

torch = pytest.importorskip("torch", reason="the script times PyTorch's product")

from tilewise.bench import invariant  # noqa: E402
from tilewise.bench.stand import Stand, shapes  # noqa: E402

SCRIPT = script("invariant.py")


class Backend:
    """What stands for torch.backends.cuda of a build with cuBLASLt."""

    def __init__(self, pair: tuple[bool, bool] = (True, True)) -> None:
        self.library = "cublas"
        self.seen: list[Any] = []
        outer = self

        class Settings:
            def __getattr__(self, name: str) -> bool:
                if name == "allow_bf16_reduced_precision_reduction":
                    return outer.pair[0]
                if name == "allow_bf16_reduced_precision_reduction_split_k":
                    return outer.pair[1]
                raise AttributeError(name)

            def __setattr__(self, name: str, value: Any) -> None:
                assert name == "allow_bf16_reduced_precision_reduction"
                outer.pair = value

        self.pair, self.matmul = pair, Settings()

    def preferred_blas_library(self, name: str | None = None) -> str:
        if name is not None:
            self.library = name
        return self.library


@pytest.mark.parametrize("pair", [(True, True), (False, True)])
def test_k_is_undivided_for_a_while(
    pair: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Backend(pair)
    monkeypatch.setattr(torch.backends, "cuda", found)
    with invariant.undivided("bfloat16"):
        assert (found.library, found.pair) == ("cublaslt", (False, False))
    assert (found.library, found.pair) == ("cublas", pair)
    with pytest.raises(KeyError), invariant.undivided("bfloat16"):
        raise KeyError
    assert (found.library, found.pair) == ("cublas", pair)
    with (
        pytest.raises(RuntimeError, match="can't leave k undivided"),
        invariant.undivided("float16"),
    ):
        pass


def test_pytorch_has_these_settings() -> None:
    """By their real names, where it is new enough."""
    settings = torch.backends.cuda.matmul
    before = settings.allow_bf16_reduced_precision_reduction
    if not hasattr(settings, "allow_bf16_reduced_precision_reduction_split_k"):
        pytest.skip("it takes PyTorch 2.10")
    settings.allow_bf16_reduced_precision_reduction = (False, False)
    try:
        assert not settings.allow_bf16_reduced_precision_reduction_split_k
    finally:
        settings.allow_bf16_reduced_precision_reduction = (before, True)
    library = torch.backends.cuda.preferred_blas_library()
    assert torch.backends.cuda.preferred_blas_library(library) == library


def test_who_is_timed() -> None:
    few, many = (Shape(m, 64, 64, ROWS, COLUMNS) for m in (128, 129))
    ours, others = ["invariant", "default"], ["torch", "torch, k undivided"]
    assert list(invariant.calls_of(few, "bfloat16", "auto")) == ours + others
    assert list(invariant.calls_of(many, "bfloat16", "auto")) == [*ours, "torch"]
    assert list(invariant.calls_of(few, "bfloat16", "emulator")) == [*ours, "torch"]


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        invariant, "matmul", lambda a, b, out, device, invariant: out.fill_(2.0 if invariant else 3)
    )
    at = Stand("cpu", None, 1, 1e-4)
    row = invariant.measure(Shape(3, 16, 24, ROWS, COLUMNS), "bfloat16", at)
    assert row["wrong"] == ["invariant", "default"]
    assert "ratios" not in row
    assert invariant.summaries([row]) == []


def test_summaries() -> None:
    rows = [
        {"name": "a", "ratios": {"default": 0.97, "torch": 1.1, "torch, k undivided": 1.3}},
        {"name": "b", "ratios": {"default": 1.01, "torch": 1.0}},
    ]
    default, vendor, undivided = invariant.summaries(rows)
    assert (default["worst"], default["worst_at"], default["is_met"]) == (0.97, "a", True)
    assert (vendor["goal"], vendor["worst_goal"], vendor["is_met"]) == (1.0, None, True)
    assert (undivided["count"], undivided["goal"]) == (1, 1.1)
    assert undivided["what"].endswith("to 128 rows")


def test_everything_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    values = SCRIPT["compile_all"].__globals__
    compiled: list[Any] = []
    monkeypatch.setitem(values, "chip_of", lambda gpu: H200)
    monkeypatch.setitem(
        values, "compile_ahead", lambda kernels, arch, lines: compiled.extend(kernels)
    )
    at: Any = SimpleNamespace(gpu=SimpleNamespace(arch="sm_90a"))
    SCRIPT["compile_all"](shapes(), "bfloat16", at)
    plain = list(kernels_of(H200, [values["product_of"](x, "bfloat16") for x in shapes()]))
    assert len(compiled) > len(plain)  # where k is divided otherwise
    assert {repr(x) for x in plain} <= {repr(x) for x in compiled}


def test_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.json"
    words = f"--tiny --seconds 1e-4 --rounds 1 --json {path}"
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"](words.split())
    assert ended.value.code == 0
    found = json.loads(path.read_text())
    assert [row["name"] for row in found["rows"]] == ["1x16x24", "5x24x16"]
    assert [row["parts"] for row in found["rows"]] == [1, 1]
    assert all(row["same_bits"]["default"] for row in found["rows"])
    assert all(row["error_share"]["invariant"] <= 1 for row in found["rows"])
    assert capsys.readouterr().out.count("geometric mean") == len(found["summaries"]) == 2
    with pytest.raises(SystemExit):
        SCRIPT["main"]([*words.split(), "--limit", "1e-9"])
    assert json.loads(path.read_text())["not_measured"] == 2
    assert "2 were not measured" in capsys.readouterr().out


def test_what_failed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise RuntimeError("out of memory\nand more")

    monkeypatch.setattr(invariant, "measure", fails)
    path = tmp_path / "found.json"
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"](["--tiny", "--json", str(path)])
    assert ended.value.code == 1
    assert json.loads(path.read_text())["failures"][0] == "1x16x24: out of memory"
