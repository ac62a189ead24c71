"""benchmarks/models.py: what needs no GPU, and all of it with tiny models."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import script

torch = pytest.importorskip("torch", reason="the models are PyTorch's")

import tilewise.torch  # noqa: E402
from tilewise.bench import model_checks, models  # noqa: E402
from tilewise.bench.stand import Stand  # noqa: E402
from tilewise.bench.timing import Timings  # noqa: E402

SCRIPT = script("models.py")


class Small(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Two layers, with a bias and without, and a tied one."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(11, 8)
        self.inner = torch.nn.Linear(8, 12)
        self.outer = torch.nn.Linear(12, 8, bias=False)
        self.logits = torch.nn.Linear(8, 11, bias=False)
        self.logits.weight = self.words.weight

    def forward(self, words: Any) -> Any:
        return self.logits(self.outer(self.inner(self.words(words)).relu()))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("is_ours", [False, True])
def test_every_product_of_a_model_is_checked(dtype: str, is_ours: bool) -> None:
    torch.manual_seed(0)
    model = Small().to(getattr(torch, dtype))
    if is_ours:
        tilewise.torch.replace_linears(model)
    words = torch.randint(11, (3, 5))
    found = model_checks.linear_shares(
        model, lambda: model(words).float().square().sum().backward()
    )
    gradients = ["gradient of weight", "gradient of x"]
    assert sorted(found) == sorted(
        ["inner", "outer", "logits"]
        + [f"{name}, {x}" for name in ("inner", "outer") for x in gradients]
        + ["logits, gradient of x"]
    )
    assert 0 < max(found.values()) <= 1
    assert all(x.grad is None for x in model.parameters())
    assert not any(x._forward_hooks or x._backward_hooks for x in model.modules())
    with torch.no_grad():
        assert sorted(model_checks.linear_shares(model, lambda: model(words))) == [
            "inner", "logits", "outer",
        ]  # fmt: skip
    row = model_checks.worst_share(found)
    assert (row["products"], row["wrong"]) == (8, [])


class Wrong(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """A linear layer of which one thing is wrong, by a percent."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, what: str) -> Any:
        ctx.save_for_backward(x, w)
        ctx.what = what
        return torch.nn.functional.linear(x, w) * (1.01 if what == "y" else 1)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, w = ctx.saved_tensors
        of_x, of_w = g @ w, g.flatten(0, -2).T @ x.flatten(0, -2)
        return (
            of_x * (1.01 if ctx.what == "x" else 1),
            of_w * (1.01 if ctx.what == "w" else 1),
            None,
        )


@pytest.mark.parametrize(
    ("what", "where"),
    [("y", "outer"), ("x", "outer, gradient of x"), ("w", "outer, gradient of weight")],
)
def test_what_is_wrong_is_found(what: str, where: str) -> None:
    torch.manual_seed(0)
    model = Small()
    layer = model.outer
    layer.forward = lambda x: Wrong.apply(x, layer.weight, what)
    words = torch.randint(11, (3, 5))
    found = model_checks.linear_shares(model, lambda: model(words).square().sum().backward())
    assert model_checks.worst_share(found)["wrong"] == [where]
    nothing = model_checks.worst_share({"a": float("inf"), "b": 0.5})
    assert (nothing["error_share"], nothing["wrong"]) == (None, ["a"])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_products_with_an_epilogue_are_checked(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward; one element that is wrong is found, in either."""
    from tilewise.arrays import dispatched

    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.SiLU(), torch.nn.Linear(12, 8))
    tilewise.torch.replace_linears(model.to(kind))
    x = torch.randn(2, 3, 8).to(kind)
    found = model_checks.fused_shares(lambda: model(x).float().square().sum().backward())
    assert len(found) == 3
    assert ["sigmoid" in name for name in found] == [True, False, True]
    assert 0 < max(found.values()) <= 1
    (own,) = dispatched._answers
    for wrong in range(3):
        calls: list[Any] = []

        def spoiled(
            *args: Any, wrong: int = wrong, calls: list[Any] = calls, **options: Any
        ) -> Any:
            result = own(*args, **options)
            if options.get("asked") is not None:
                calls.append(None)
                last = result[-1] if isinstance(result, tuple) else result
                if len(calls) == wrong + 1:
                    last.view(-1)[5] += 0.1
            return result

        monkeypatch.setattr(dispatched, "_answers", [spoiled])
        shares = model_checks.fused_shares(lambda: model(x).float().square().sum().backward())
        assert [share > 1 for share in shares.values()] == [i == wrong for i in range(3)]
    monkeypatch.setattr(dispatched, "_answers", [own])
    gated = torch.randn(12, 8).to(kind)
    function = tilewise.Epilogue(lambda gate, up, r: tilewise.silu(gate) * up + r, pairs=True)
    for b, pairs in (((gated[:6].T, gated[6:].T), None), (gated.T, "halves")):
        run = partial(
            tilewise.torch.matmul, x, b, alpha=0.5, epilogue=function, pairs=pairs,
            r=torch.ones(3, 1),
        )  # fmt: skip
        assert 0 < max(model_checks.fused_shares(run).values()) <= 1


def curves(*factors: float) -> list[list[float]]:
    """Curves that fall from 8 to 0.5, each times a factor."""
    return [[factor * 2.0 ** (3 - i / 8) for i in range(33)] for factor in factors]


THEIRS = (1.0, 1.02, 0.98, 1.01)


def test_curves_beside_those_of_other_seeds() -> None:
    theirs = curves(*THEIRS)
    same = models.compared(theirs, curves(1.01, 0.99, 1.0, 1.03))
    assert same["is_within"]
    assert len(same["splits"]) == 34
    assert same["splits"] == sorted(same["splits"])
    assert (same["steps"], same["torch"][0]) == ([1, 5, 9, 17, 25, 33], [8, *same["torch"][0][1:]])
    # The distance is that of the means' logarithms.
    double = models.compared(theirs, curves(*(2 * x for x in THEIRS)))
    assert double["distance"] == pytest.approx(np.log(2))
    assert (double["share"], double["is_within"]) == (pytest.approx(1 / 35), False)
    assert models.compared(theirs, theirs)["share"] == 1


@pytest.mark.parametrize("factor", [1.2, 0.8])
def test_curves_outside_the_spread_of_seeds(factor: float) -> None:
    """Of all losses, or only of the last ones, which are small."""
    theirs = curves(*THEIRS)
    ours = curves(*(factor * x for x in THEIRS))
    assert not models.compared(theirs, ours)["is_within"]
    late = [x[:24] + y[24:] for x, y in zip(theirs, ours, strict=True)]
    assert not models.compared(theirs, late)["is_within"]


def test_seeds_that_are_curves_of_either_are_found_so() -> None:
    """Of curves whose makers don't matter, a twentieth at most is said to be outside."""
    generator = np.random.default_rng(0)
    outside = 0
    for _ in range(200):
        every = curves(*np.exp(generator.normal(0, 0.1, 8)))
        outside += not models.compared(every[:4], every[4:])["is_within"]
    assert 0 < outside <= 0.05 * 200 + 9  # three standard deviations


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0])
@pytest.mark.parametrize("is_ours", [False, True])
def test_losses_that_are_no_numbers_are_outside(bad: float, is_ours: bool) -> None:
    groups = [curves(*THEIRS), curves(*THEIRS)]
    groups[is_ours][1][2] = bad
    assert not models.compared(*groups)["is_within"]


def test_three_seeds_are_too_few() -> None:
    few = curves(*THEIRS[:3])
    with pytest.raises(ValueError, match="curves of 3 seeds; the test takes 4 or more"):
        models.compared(few, few)


@pytest.mark.parametrize("steps", [2, 3, 4, 9])
def test_a_curve_by_replays(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many steps as are asked for, in order, captured or not."""
    made = torch.zeros(())

    class Counts:
        def step(self) -> Any:
            made.add_(1)
            return made.clone()

    def captured(work: Any) -> Any:
        work()
        return work

    monkeypatch.setattr(models, "captured", captured)
    for in_graph in (True, False):
        made.zero_()
        found = models.curve(Counts(), steps, in_graph=in_graph)  # type: ignore[arg-type]
        assert len(found) == steps
        assert made == steps
        assert found == [float(x) for x in range(1, steps + 1)]


def test_summaries() -> None:
    training = [
        {"rival": rival, "ours": "tilewise", "ratios": {"eager": eager, "captured": captured}}
        for rival, eager, captured in (("torch", 1.5, 1.3), ("torch.compile", 0.9, 1.1))
    ]
    decoding = [
        {"batch": batch, "ratios": {"eager": 1.0, "captured": ratio}}
        for batch, ratio in ((1, 1.1), (64, 1.02))
    ]
    found = {x["what"]: x for x in models.summaries(training, decoding)}
    assert [x["is_met"] for x in found.values()] == [True, False, False, True, False, True]
    step = found["training step, captured: time of torch by that of tilewise"]
    assert (step["worst"], step["goal"], step["way"]) == (1.3, 1.4, "captured")
    captured = found["decoding, captured: time of torch by that of tilewise"]
    assert (captured["worst"], captured["worst_at"], captured["goal"]) == (1.02, "batch 64", 1.05)
    assert models.summaries([], []) == []


def test_rows_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured, a training step is a graph of its own, of both contenders."""
    timed: list[tuple[list[str], Any]] = []
    graphs: list[Any] = []
    seconds = {"torch": 3.0, "tilewise": 2.0}

    def time(self: Any, contenders: dict[str, Any], in_graph: bool | None = None) -> Any:
        timed.append((list(contenders), in_graph))
        return Timings({name: [seconds[name]] for name in contenders}, {}, bool(in_graph))

    monkeypatch.setattr(Stand, "time", time)

    def captured(work: Any) -> Any:
        graphs.append(work)
        return work

    monkeypatch.setattr(models, "captured", captured)
    at = Stand("cuda", object(), 1, 1.0)  # type: ignore[arg-type]
    works = dict.fromkeys(seconds, lambda: None)
    for row, timer in (
        (models.training_row("torch", "tilewise"), models.time_training),
        (models.decoding_row(4), models.time_decoding),
    ):
        for way in models.ways_of(at):
            timer(at, works, way, row)
        assert row["ratios"] == {"eager": 1.5, "captured": 1.5}
    assert [x for _, x in timed] == [False, False, False, True]
    assert len(graphs) == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--seeds 3", "--seeds must be at least 4"),
        ("--batches 0", "--batches at least 1"),
        ("--steps 0", "--steps must be at least 1"),
        ("--losses-context 0", "--losses-context must be at least 1"),
        ("--contenders tilewise", "takes torch and tilewise"),
        ("--stages forward", "invalid choice: 'forward'"),
        ("--resume", "--resume takes --json"),
    ],
)
def test_what_is_none(words: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        SCRIPT["parsed"](words.split())
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


WORDS = "--tiny --backend eager --batches 1 3 --seeds 4 --steps 3 --rounds 1 --seconds 1e-3"


def test_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And with --resume what was not measured, but nothing again."""
    path = tmp_path / "found.json"
    given = [*WORDS.split(), "--contenders", *models.CONTENDERS, "--json", str(path)]
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"](given)
    assert ended.value.code == 0
    found = json.loads(path.read_text())
    assert [(x["rival"], x["ours"]) for x in found["training"]] == list(models.GOALS)
    for row in found["training"]:
        assert set(row["seconds"]["eager"]) == {row["rival"], row["ours"]}
        assert list(row["ratios"]) == ["eager"]
    assert [row["batch"] for row in found["decoding"]] == [1, 3]
    assert list(found["decoding"][0]["ratios"]) == ["eager"]
    assert set(found["checks"]) == {"GPT-2", "decoding, batch 1", "decoding, batch 3"}
    assert found["checks"]["GPT-2"]["products"] > 30
    losses = found["losses"]
    assert losses["is_within"]
    assert losses["share"] > 0.5  # the same bits but for roundings
    assert losses["torch"][0][-1] < losses["torch"][0][0]
    assert found["failures"] == []
    told = capsys.readouterr()
    assert "losses: the means are" in told.out
    assert "GPT-2: 36 products" in told.err
    found["training"] = found["training"][:2]
    del found["curves"]["3"]
    path.write_text(json.dumps(found))
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"]([*given, "--resume"])
    assert ended.value.code == 0
    again = json.loads(path.read_text())
    assert again["training"][:2] == found["training"]
    assert len(again["training"]) == len(models.GOALS)
    assert again["decoding"] == found["decoding"]
    assert list(again["curves"]) == ["0", "1", "2", "3"]
    assert again["losses"] == losses
    assert (found["earlier_commands"], len(again["earlier_commands"])) == ([], 1)
    assert again["earlier_commands"][0].endswith(found["command"])
    with pytest.raises(SystemExit, match="has steps 3, and not 4"):
        SCRIPT["main"]([*given, "--resume", "--steps", "4"])


def test_the_vocabulary_is_padded() -> None:
    at = Stand("cpu", None, 1, 1e-3)
    run = SCRIPT["Run"](SCRIPT["parsed"](["--tiny"]), at)
    assert run._padded().logits.weight.shape[0] == 320
    run.sizes = SCRIPT["replace"](run.sizes, vocabulary=50257)
    assert run._padded().words.weight.shape[0] == 50304


def test_what_failed_and_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing wrong is timed, a rival that does not compile is left out, a limit is kept."""

    def fails(*args: Any, **options: Any) -> Any:
        raise RuntimeError("no compiler\nat all")

    monkeypatch.setattr(torch, "compile", lambda *args, **options: fails)
    path = tmp_path / "found.json"
    given = [*WORDS.split(), "--stages", "training", "--json", str(path)]
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"](given)
    assert ended.value.code == 1
    found = json.loads(path.read_text())
    assert [x["rival"] for x in found["training"]] == ["torch", "torch, padded"]
    assert found["failures"] == [
        f"training, torch.compile by {name}: no compiler"
        for name in ("tilewise", "tilewise, compile")
    ]
    monkeypatch.setattr(model_checks, "linear_shares", lambda model, run: {"logits": 1.5})
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"](given)
    assert ended.value.code == 1
    found = json.loads(path.read_text())
    assert found["training"] == []
    assert found["checks"]["GPT-2"]["wrong"] == ["logits"]
    with pytest.raises(SystemExit):
        SCRIPT["main"]([*given, "--limit", "1e-9"])
    assert json.loads(path.read_text())["not_measured"] == 4
