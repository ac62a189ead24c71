"""benchmarks/mma_products.py and the rivals it times: what needs no GPU."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scripts import BENCHMARKS, script

import tilewise
from tilewise.bench.record import product_of
from tilewise.bench.suites import COLUMNS, ROWS, Random, Shape, Storage
from tilewise.compiler.ptx.given import given
from tilewise.gemm.chip import H200
from tilewise.gemm.plan import plan_on
from tilewise.launch import Launch

torch = pytest.importorskip("torch", reason="the script times PyTorch's product")
SCRIPT = script("mma_products.py")
TRITON = SCRIPT["triton_sm80"]
CUTLASS = SCRIPT["cutlass_sm80"]
Config, Variant = TRITON.Config, TRITON.Variant
has_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
LAYOUTS = [(a, b) for a in (ROWS, COLUMNS) for b in (ROWS, COLUMNS)]


def operands(shape: Shape) -> Any:
    return SCRIPT["operands"](shape, "bfloat16", torch.Generator().manual_seed(1))


def test_what_is_asked_for() -> None:
    words = "--sizes 64,128 --layouts NT,TN --suite llm --random 3 --multiple 8"
    options = SCRIPT["parsed"](words.split())
    found = options.products
    assert [(x.size, x.layout) for _, x in found[:4]] == [
        ("64x64x64", "NT"), ("64x64x64", "TN"), ("128x128x128", "NT"), ("128x128x128", "TN"),
    ]  # fmt: skip
    assert [suite for suite, _ in found[-4:]] == ["llm"] + ["random, multiples of 8, seed 1"] * 3
    assert all(SCRIPT["is_aligned"](x) for _, x in found)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "there is nothing to time"),
        ("--sizes 0", "--sizes: 0 is not a value of this option"),
        ("--sizes 8 --layouts NX", "'NX' is not a value of this option"),
        ("--random 2 --multiple 0", "multiple is 0"),
        ("--sizes 8 --rounds 0", "must be above 0"),
        ("--sizes 8 --resume", "--resume goes on with the FILE"),
        ("--sizes 8 --dtype float32", "invalid choice: 'float32'"),
    ],
)
def test_what_is_none(words: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        SCRIPT["parsed"](words.split())
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_a_run_goes_on_where_another_ended(tmp_path: Path) -> None:
    options = SCRIPT["parsed"](["--sizes", "64,128", "--layouts", "NN,NT"])
    path, chip = tmp_path / "record.json", SCRIPT["asdict"](H200)
    assert SCRIPT["resumed"](path, "bfloat16", H200) == []
    rows = [
        {"suite": suite, "name": shape.name, "layout": shape.layout}
        for suite, shape in options.products[:3]
    ]
    path.write_text(json.dumps({"dtype": "bfloat16", "chip": chip, "rows": rows}))
    assert SCRIPT["resumed"](path, "bfloat16", H200) == rows
    assert SCRIPT["left"](options.products, rows) == options.products[3:]
    with pytest.raises(ValueError, match="products of dtype bfloat16, not float16"):
        SCRIPT["resumed"](path, "float16", H200)


def test_rivals_in_the_ways_that_were_the_fastest(tmp_path: Path) -> None:
    """Of another run, of the product and of the padded one; without a record in all."""
    first, second = Config(64, 32, 32, 5, 2), Config(16, 256, 128, 4, 4)
    ways = [
        {"tilewise": "tiles of 64 x 32", "triton": str(first), "cutlass": "64x64x64", "vendor": ""},
        {"triton": str(first), "triton padded": str(second), "triton copied": str(second)},
    ]
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"rows": [{"ways": way} for way in ways]}))
    options = SCRIPT["parsed"](["--sizes", "64", "--fastest-of", str(path)])
    assert (options.configs, options.tilings) == ([first, second], ["64x64x64"])
    every = SCRIPT["parsed"](["--sizes", "64"])
    assert (every.configs, every.tilings) == (TRITON.CONFIGS, [])
    path.write_text(json.dumps({"rows": [{"ways": {"triton": "64x32x32"}}]}))
    with pytest.raises(SystemExit):
        SCRIPT["parsed"](["--sizes", "64", "--fastest-of", str(path)])


def test_tilewise_plans_without_hoppers_kernels() -> None:
    chip = SCRIPT["replace"](H200, capability=80)
    for size in (64, 1000, 4096):
        plan = plan_on(product_of(Shape(size, size, size), "bfloat16"), chip)
        assert plan.steps
        assert "Hopper" not in plan.chosen
        assert not any("hopper" in repr(step.kernel) for step in plan.steps)


def test_a_tile_is_not_far_larger_than_the_product() -> None:
    config = Config(128, 256, 64, 3, 8)
    assert config.for_sizes(4096, 4096, 4096) == config
    assert config.for_sizes(1, 6144, 4096) == Config(16, 256, 64, 3, 8)
    assert config.for_sizes(64, 20, 33) == Config(64, 32, 64, 3, 8)
    assert Config(64, 32, 32, 5, 8).for_sizes(16, 4096, 16) == Config(16, 32, 16, 5, 2)
    small = TRITON.variants(Shape(16, 16, 16), "float16")
    assert len({x.config for x in small}) == len(small) < len(TRITON.CONFIGS)


def test_what_a_kernel_is_compiled_for() -> None:
    config = Config(64, 64, 32, 3, 4)
    whole = TRITON.variant_of(Shape(1, 64, 96, ROWS, COLUMNS), "bfloat16", config)
    assert whole.is_even
    assert set(TRITON.SIZES) - set(whole.divisible) == {"m", "a_column", "b_row"}
    assert set(whole.divisible) > {"a", "b", "d"}
    assert whole.constants.items() > {"a_column": 1, "b_row": 1, "BLOCK_K": 32}.items()
    odd = TRITON.variant_of(Shape(8, 9, 24, COLUMNS, Storage(offset=1)), "bfloat16", config)
    assert odd.divisible == ("m", "k", "a_column", "a", "d")
    assert not odd.is_even
    assert whole.name != odd.name
    for shape in (Shape(8, 8, 8, batch=2), Shape(8, 8, 8, is_wide=True), Shape(8, 8, 8, d=COLUMNS)):
        with pytest.raises(ValueError, match="it takes one product"):
            TRITON.variants(shape, "bfloat16")
    with pytest.raises(ValueError, match="fewer than 2³¹ elements"):
        TRITON.variants(Shape(65536, 65536, 8), "bfloat16")


@pytest.mark.parametrize(("a", "b"), LAYOUTS)
@pytest.mark.parametrize("keeps", [False, True])
def test_padding_by_hand(a: Storage, b: Storage, keeps: bool) -> None:
    """What the kernel is given is aligned; the result is right where zeros stay beside it."""
    moved: dict[str, bool] = {}

    def product(x: Any) -> None:
        matrices = ((name, getattr(x, name), getattr(first, name)) for name in "abd")
        for name, y, given_y in matrices:
            assert max(y.stride()) % 8 == 0
            moved[name] = y.data_ptr() != given_y.data_ptr()
        assert (x.a.shape[0], x.b.shape[1], x.a.shape[1]) == (inner.m, inner.n, inner.k)
        assert x.a.shape[1] == x.b.shape[0]
        x.d.copy_((x.a.double() @ x.b.double()).to(x.d.dtype))

    for sizes in ((13, 24, 40), (16, 21, 40), (16, 24, 37), (5, 7, 9), (16, 24, 40)):
        shape = Shape(*sizes, a, b)
        inner = SCRIPT["padded"](shape)
        assert SCRIPT["is_aligned"](inner)
        assert SCRIPT["is_aligned"](shape) == (inner == shape)
        variant = TRITON.variant_of(inner, "bfloat16", TRITON.CONFIGS[0])
        assert {"a", "b", "d", "d_row"} < set(variant.divisible)
        call = SCRIPT["padding"](shape, inner, product, keeps=keeps)
        for seed in (1, 2):
            first = SCRIPT["operands"](shape, "bfloat16", torch.Generator().manual_seed(seed))
            call(first)
            assert SCRIPT["error_share"](first.a, first.b, first.d) <= 1
        for name, lies in zip("abd", shape.views(), strict=True):
            view = inner.views()["abd".index(name)]
            assert moved[name] == (lies != view)


def test_only_what_is_off_is_padded() -> None:
    assert SCRIPT["padded"](Shape(13, 24, 40)) == Shape(13, 24, 40)  # m is no line's length
    assert SCRIPT["padded"](Shape(13, 24, 40, COLUMNS)).m == 16
    assert SCRIPT["padded"](Shape(16, 24, 37, COLUMNS, ROWS)) == Shape(16, 24, 37, COLUMNS, ROWS)
    assert SCRIPT["padded"](Shape(16, 24, 37)).k == 40
    off = Shape(16, 24, 40, Storage(padding=1), Storage(offset=8))
    assert SCRIPT["padded"](off) == Shape(16, 24, 40, ROWS, Storage(offset=8))
    for shape in Random(40, 3, 1).shapes():
        inner = SCRIPT["padded"](shape)
        assert 0 <= inner.k - shape.k < 8
        assert SCRIPT["padded"](inner) == inner


def test_the_fastest_of_a_rivals_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    values = SCRIPT["fastest"].__globals__
    times = {"slow": 9.0, "near": 1.05, "best": 1.0, "refused": 0.0}
    timed: list[str] = []

    def in_turn(works: dict[str, Any], rounds: int, seconds: float) -> Any:
        timed.extend(works)
        return SimpleNamespace(seconds={name: [times[name]] for name in works})

    class Way:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, x: Any) -> None:
            x.ran.append(self.name)
            if self.name == "refused":
                raise RuntimeError("it does not take that")

    monkeypatch.setitem(values, "seconds_of", lambda work, count=1: times[work.func.name])
    monkeypatch.setitem(values, "in_turn", in_turn)
    sets = [SimpleNamespace(ran=[]), SimpleNamespace(ran=[])]
    found = SCRIPT["fastest"]({name: Way(name) for name in times}, sets)
    assert found.way == "best"
    assert found.tried == {"best": 1.0, "near": 1.05}
    assert timed == ["best", "near"]
    assert sets[0].ran == list(times)
    assert SCRIPT["fastest"]({"refused": Way("refused")}, sets) is None
    assert SCRIPT["fastest"]({}, sets) is None


def test_half_of_the_rounds_are_in_the_reverse_order(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[tuple[list[str], int]] = []

    def in_turn(works: dict[str, Any], rounds: int, seconds: float, after: Any) -> Any:
        orders.append((list(works), rounds))
        for index in range(rounds):
            for name in works:
                after(name, index)
        return SimpleNamespace(seconds={name: [1.0] * rounds for name in works})

    clocks = iter(range(100))
    monkeypatch.setitem(SCRIPT["both_ways"].__globals__, "in_turn", in_turn)
    monkeypatch.setattr(torch.cuda, "clock_rate", lambda: next(clocks))
    works = {name: [lambda: None] for name in ("tilewise", "triton", "vendor")}
    found, clock = SCRIPT["both_ways"](works, 5, 0.1)
    names = ["tilewise", "triton"]
    assert orders == [(names, 3), (names[::-1], 2), (["vendor"], 5)]
    assert {name: len(times) for name, times in found.items()} == dict.fromkeys(works, 5)
    assert clock["tilewise"] == [0, 2, 4, 7, 9]
    orders.clear()
    SCRIPT["both_ways"](works, 1, 0.1)
    assert orders == [(names, 1), (["vendor"], 1)]

    def none() -> int:
        raise OSError("NVML: not supported")

    monkeypatch.setattr(torch.cuda, "clock_rate", none)
    assert SCRIPT["both_ways"](works, 1, 0.1)[1] == {name: [] for name in works}


def test_rows_and_summaries() -> None:
    def row(name: str, ours: float, **others: float) -> dict[str, Any]:
        timed = {"tilewise": [ours, 99.0, ours], **{x: [y] for x, y in others.items()}}
        return {
            "suite": "square", "name": name, "layout": "NN", "wrong": [], "ways": {"triton": "T"},
            **SCRIPT["with_times"](2 * 10**12, timed),
        }  # fmt: skip

    rows = [row("a", 2.0, triton=4.0, vendor=1.0), row("b", 2.0, triton=1.0)]
    assert rows[0]["seconds"]["tilewise"] == 2.0
    assert rows[0]["tflops"] == {"tilewise": 1.0, "triton": 0.5, "vendor": 2.0}
    assert rows[0]["ratios"] == {"triton": 2.0, "vendor": 0.5}
    found = SCRIPT["summaries"](rows)
    assert [(x["rival"], x["products"], x["worst"], x["name"]) for x in found] == [
        ("triton", 2, 0.5, "b NN"), ("vendor", 1, 0.5, "a NN"),
    ]  # fmt: skip
    assert found[0]["mean"] == pytest.approx(1.0)
    assert "triton 0.5 (2.000)" in SCRIPT["told"](rows[0])
    assert "triton by T" in SCRIPT["told"](rows[0])
    wrong = rows[0] | {"wrong": ["cutlass"]}
    assert "cutlass WRONG" in SCRIPT["told"](wrong)
    ours_wrong = SCRIPT["with_times"](1, {"triton": [1.0]}) | {
        key: wrong[key] for key in ("suite", "name", "layout", "wrong", "ways")
    }
    assert SCRIPT["summaries"]([ours_wrong]) == []
    assert "triton 0.0" in SCRIPT["told"](ours_wrong)


def test_cutlass_takes_aligned_products_of_what_is_built(tmp_path: Path) -> None:
    assert CUTLASS.ways(Shape(8, 8, 8), "bfloat16", tmp_path, "sm_90") == {}
    path = CUTLASS.library(tmp_path, "bfloat16", "NT", "sm_90")
    path.write_bytes(b"")
    assert CUTLASS.ways(Shape(8, 9, 8, ROWS, COLUMNS), "bfloat16", tmp_path, "sm_90") == {}
    assert path != CUTLASS.library(tmp_path, "bfloat16", "NN", "sm_90")


def test_what_is_not_built_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = CUTLASS.build([("bfloat16", "NN")], tmp_path / "built", "sm_90", tmp_path, 1)
    assert len(told) == 1
    assert "nvcc" in told[0]
    assert list((tmp_path / "built").iterdir()) == []
    variant = TRITON.variants(Shape(64, 64, 64), "bfloat16")[0]
    assert TRITON.load(variant, tmp_path) is None


@has_triton
@pytest.mark.parametrize(("a", "b"), LAYOUTS)
@pytest.mark.parametrize("sizes", [(136, 72, 104), (33, 57, 41), (1, 64, 64)])
def test_tritons_product_is_right(
    sizes: tuple[int, int, int], a: Storage, b: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``sm_80`` has it, on the emulator: by mma.sync, and by copies of 16 bytes if aligned."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    shape = Shape(*sizes, a, b)
    (variant,) = TRITON.variants(shape, "bfloat16", [Config(64, 32, 32, 3, 2)])
    kernel = TRITON.compiled_ptx(variant)
    ptx = kernel.asm["ptx"]
    assert ".target sm_80" in ptx
    assert "mma.sync" in ptx
    assert "wgmma" not in ptx
    is_aligned = SCRIPT["is_aligned"](shape)
    assert ("cp.async.cg" in ptx and "ld.global" not in ptx) == is_aligned
    assert ("st.global.v4" in ptx) == (shape.n % 8 == 0)
    x, device = operands(shape), tilewise.emulator("sm_80")
    arrays = [device.array(y.T.view(torch.int16).T.numpy().ravel("K")) for y in (x.a, x.b, x.d)]
    compiled = given(ptx, "matmul", arch="sm_80")
    built = TRITON.Built(compiled, kernel.metadata.shared, variant)
    caught: list[Launch] = []
    gpu: Any = SimpleNamespace(prepare=lambda compiled, launch: caught.append(launch))
    built.call(gpu, shape)
    (launch,) = caught
    args = (*(y.pointer for y in arrays), *launch.args[3:])
    device.launch(compiled, SCRIPT["replace"](launch, args=args))
    found = torch.from_numpy(np.array(arrays[2].to_numpy())).view(torch.bfloat16)
    assert SCRIPT["error_share"](x.a, x.b, found.view(shape.m, shape.n)) <= 1


@has_triton
def test_what_is_built_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setitem(sys.modules, "triton_sm80", TRITON)  # processes find it by its name
    shape = Shape(64, 64, 64)
    variants = TRITON.variants(shape, "bfloat16", [Config(32, 32, 16, 1, 2)])
    assert TRITON.build(variants, tmp_path, "sm_90", 1) == []
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert TRITON.build(variants, tmp_path, "sm_90", 1) == []
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    found = TRITON.load(variants[0], tmp_path)
    assert found.compiled.arch == "sm_90"
    assert found.compiled.cubin[:4] == b"\x7fELF"
    assert found.compiled.resources.registers > 16
    names = [each.type for each in found.compiled.parameters]
    assert names == ["u64"] * 3 + ["u32"] * 6 + ["u64"] * 2
    entry = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert entry["shared"] == found.shared
