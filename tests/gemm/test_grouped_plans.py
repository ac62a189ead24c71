"""How grouped products are planned, explained, and named to be compiled beforehand."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import numpy as np
import pytest
from reference import is_thorough

import tilewise
from tilewise.cli.main import main
from tilewise.explanation import explain_product, of_groups
from tilewise.gemm.chip import H200, Chip, known
from tilewise.gemm.every import every_grouped_kernel
from tilewise.gemm.grouped import model, tiles
from tilewise.gemm.grouped.product import Grouped
from tilewise.gemm.grouped.tiles import FEW_GROUPS, MOST_GROUPS, Tiles
from tilewise.gemm.plan import OF_GROUPS, best, offers, plan_on
from tilewise.gemm.product import Operand
from tilewise.gemm.steps import Plan
from tilewise.kernel import Kernel
from tilewise.places import ITEM_SIZES

GROUPED = sys.modules["tilewise.grouped"]
CHIPS = [H200, known("a100"), known("rtx4090"), None]


def key(kernel: Kernel) -> tuple[Any, ...]:
    """What a kernel is compiled from."""
    return kernel.path, kernel.name, frozenset(kernel.defines.items()), kernel.options


def drawn(rng: random.Random, dtype: str) -> Grouped:
    """A grouped product of any sizes, layouts and alignment."""

    def size() -> int:
        return int(2 ** rng.uniform(0, 9)) * (8 if is_aligned else rng.choice([1, 2, 8]))

    def lying(rows: int, columns: int, item: int, by_rows: bool) -> Operand:
        pitch = 0 if is_aligned else rng.choice([0, 8, 1])
        strides = (columns + pitch, 1) if by_rows else (1, rows + pitch)
        if rng.random() < 0.02:
            strides = (strides[0] * 2, strides[1] * 2)
        return Operand(*strides, 0, 0 if is_aligned else rng.choice([0, 0, item]))

    is_aligned = rng.random() < 0.5
    m, n, k = size(), size(), size()
    of, item = rng.choice("mk"), ITEM_SIZES[dtype]
    out = rng.choice([dtype, dtype, "float32" if item == 2 else dtype])
    usual = rng.random() < 0.7  # as TMA wants it
    a = lying(m, k, item, of == "m" if usual else rng.random() < 0.5)
    b = lying(k, n, item, (usual and of == "k") or rng.random() < 0.5)
    d = lying(m, n, ITEM_SIZES[out], (usual and of == "m") or rng.random() < 0.5)
    step = 8 if is_aligned else 1
    if of == "m":
        b = b._replace(batch_stride=n * k * 8 + step)
    else:
        d = d._replace(batch_stride=m * n * 8 + step)
    groups = rng.choice([1, 8, FEW_GROUPS, FEW_GROUPS + 1, MOST_GROUPS + 1])
    return Grouped(of, m, n, k, groups, dtype, out, rng.choice(["int32", "int64"]), a, b, d)


@pytest.mark.parametrize("chip", CHIPS, ids=lambda x: "none" if x is None else x.name)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_every_kernel_of_a_grouped_plan_is_named(dtype: str, chip: Chip | None) -> None:
    named = {}
    for family in OF_GROUPS:
        found = [key(kernel) for kernel in family.kernels(chip, dtype)]
        named[family.name] = set(found)
        assert len(found) == len(named[family.name])  # none twice
    rng, seen = random.Random(0), {name: set[Any]() for name in named}
    for _ in range(600):
        product = drawn(rng, dtype)
        name = best(product, chip).family
        seen[name] |= {key(step.kernel) for step in plan_on(product, chip).steps}
    for name, kernels in seen.items():
        assert kernels <= named[name], next(iter(kernels - named[name]))
    assert seen["grouped_general"]
    if chip is not None and dtype == "bfloat16":
        assert len(seen["grouped_mma"]) > 40
        assert (len(seen["grouped_hopper"]) > 40) is chip.is_hopper
    else:
        assert named["grouped_hopper"] == set()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("chip", [H200, known("a100")], ids=lambda x: x.name)
def test_what_is_compiled_beforehand_is_what_usual_groups_ask_for(chip: Chip) -> None:
    rng = random.Random(1)
    for groups in (8, 500, 2000):
        named = {key(kernel) for kernel in every_grouped_kernel(chip, [groups], ["bfloat16"])}
        seen = set()
        for _ in range(200 if is_thorough() else 50):
            m, n, k = (8 * int(2 ** rng.uniform(3, 10)) for _ in range(3))
            of, offsets = rng.choice("mk"), rng.choice(["int32", "int64"])
            layout = rng.choice(["NN", "NT"]) if of == "m" else "TN"
            product = of_groups(m, n, k, groups, "bfloat16", layout, of=of, offset_dtype=offsets)
            seen |= {key(step.kernel) for step in plan_on(product, chip).steps}
        assert seen <= named, next(iter(seen - named))
        tables = {dict(defines).get("MOST_GROUPS") for _, _, defines, _ in named}
        assert tables == {FEW_GROUPS if groups == 8 else MOST_GROUPS if groups == 500 else None}
    assert any(every_grouped_kernel(None, [8], ["bfloat16"]))


def test_the_plan_is_the_first_of_what_is_offered() -> None:
    """Also between the totals that tiles are ranked for, where times are interpolated."""
    for rows in (1, 100, 4096, 4500, 5000, 5119, 5120):
        product = of_groups(rows, 4096, 2048, 16, "bfloat16", "NT")
        first, *others = offers(product, H200)
        chosen = best(product, H200)
        assert (first.choice, first.seconds) == (chosen.choice, chosen.seconds)
        assert plan_on(product, H200).chosen == first.words
        assert all(each.seconds >= first.seconds for each in others)
        below = model.rounded(product)
        tiles = model.ranked(below, H200)[0].tiles
        above = product._replace(m=below.m + (1 << max(rows.bit_length() - model.DIGITS, 0)))
        ends = [
            model.seconds(x.transposed if tiles.swapped else x, tiles, H200) for x in (below, above)
        ]
        assert min(ends) <= chosen.seconds <= max(ends)


def test_of_mean_moves_what_the_groups_move() -> None:
    forward = of_groups(4096, 512, 256, 8, "bfloat16").of_mean()
    assert (forward.batch, forward.m, forward.a.batch_stride) == (8, 512, 512 * 256)
    assert (forward.b.batch_stride, forward.d.batch_stride) == (512 * 256, 512 * 512)
    gradient = of_groups(256, 512, 4096, 8, "bfloat16", of="k").of_mean()
    assert (gradient.k, gradient.a.batch_stride, gradient.b.batch_stride) == (
        512, 512 * 256, 512 * 512,
    )  # fmt: skip
    few = of_groups(3, 512, 256, 8, "bfloat16").of_mean()
    assert (few.batch, few.m) == (3, 1)


# Explanations

X, W = np.ones((40, 24), np.float32), np.ones((3, 24, 16), np.float32)
ENDS = np.array([10, 10, 40])


def scaled(acc: Any, bias: Any) -> Any:
    return tilewise.relu(acc + bias), acc


@pytest.mark.parametrize("form", ["rows", "k"])
@pytest.mark.parametrize("with_epilogue", [False, True])
def test_explained_is_what_is_launched(
    form: str, with_epilogue: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = (X, W) if form == "rows" else (X.T, np.ones((40, 16), np.float32))
    given: dict[str, Any] = {"device": "emulator"}
    if with_epilogue:
        given |= {"epilogue": scaled, "bias": np.zeros(16, np.float32)}
    executed: list[Plan] = []
    monkeypatch.setattr(GROUPED, "execute", lambda plan, *_: executed.append(plan))
    tilewise.grouped_matmul(x, w, ENDS, **given)
    found = tilewise.explain(x, w, offsets=ENDS, **given)
    (plan,) = executed
    assert found.steps == plan.steps
    assert found.chosen == plan.chosen == "the general grouped kernel, tiles of 64 x 64"
    assert "x, w and offsets to the emulator" in str(found)


def test_explained_on_a_gpu_that_is_not_here() -> None:
    half = X.astype(np.float16), W.astype(np.float16).swapaxes(1, 2).copy().swapaxes(1, 2)
    found = tilewise.explain(*half, offsets=ENDS, gpu="h200")
    assert found.chosen.startswith("the grouped Hopper kernel")
    assert found.offer is not None
    assert found.seconds == found.offer.seconds > 0
    assert found.alternatives
    said = " ".join(str(found).split())
    assert "D = A·B of each group of rows, m = 40, n = 16, k = 24, 3 groups, float16" in said
    assert (
        "3, which divide the 40 rows of A, 13.3 each on average; each has its own matrix B" in said
    )
    assert "(int64), and the plan assumes groups of the average size" in said
    assert json.loads(json.dumps(found.to_dict()))["groups"] == 3
    other = tilewise.explain(*half, offsets=ENDS, gpu="a100")
    assert other.chosen.startswith("the grouped kernel by mma.sync")
    assert "this is no Hopper GPU" in other.why
    crooked = tilewise.explain(half[0], half[1], offsets=ENDS, gpu="h200", out=np.zeros(
        (16, 40), np.float16).T)  # fmt: skip
    assert crooked.chosen.startswith("the grouped kernel by mma.sync")
    assert "D is contiguous along the dimension that is in groups" in crooked.why
    double = tilewise.explain(X.astype(float), W.astype(float), offsets=ENDS, gpu="h200")
    assert "no other family takes it: the inputs are float64, not 16-bit" in double.why


def test_explained_on_the_host() -> None:
    found = tilewise.explain(X, W, offsets=ENDS)
    assert found.chosen == "NumPy's own product"
    assert "group by group" in found.why


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"c": X}, "c is given, and offsets; grouped_matmul has no c"),
        ({"beta": 1}, "grouped_matmul has no beta"),
        ({"transpose_b": True}, "grouped_matmul has no transpose_b"),
        ({"pairs": "halves"}, "grouped_matmul has no pairs"),
        ({"gpu": "h200", "device": "emulator"}, "one of them says where"),
        ({"offsets": ENDS[:2]}, "w has 3 matrices and offsets 2 ends"),
    ],
)
def test_what_grouped_products_do_not_have_is_told(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        tilewise.explain(X, W, **{"offsets": ENDS, **changed})


def test_an_operand_may_be_named_offsets() -> None:
    found = tilewise.explain(
        X, W[0], gpu="h200", epilogue=lambda acc, offsets: acc + offsets, offsets=np.float32(2)
    )
    assert str(found.product.epilogue.function) == "acc + offsets"  # type: ignore[union-attr]
    traced = tilewise.Epilogue(lambda acc, offsets: acc + offsets)
    found = tilewise.explain(X, W[0], gpu="h200", epilogue=traced, offsets=2.0)
    assert "D = A·B, m = 40" in str(found)


# The command

SIZES = ["explain", "-m", "4096", "-n", "1024", "-k", "2048"]


def test_explain_at_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SIZES, "--groups", "8", "--layout", "NT", "--gpu", "h200"]) == 0
    said = capsys.readouterr().out
    expected = explain_product(of_groups(4096, 1024, 2048, 8, "bfloat16", "NT"), H200)
    assert said.split() == str(expected).split()
    assert main([*SIZES, "--groups", "8", "--in-groups", "k", "--gpu", "a100", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    gradient = of_groups(4096, 1024, 2048, 8, "bfloat16", of="k")
    assert document == json.loads(json.dumps(explain_product(gradient, known("a100")).to_dict()))
    assert document["a"]["row_stride"] == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--groups", "0"], "the number of groups is 0"),
        (["--in-groups", "k"], "give --groups too"),
        (["--groups", "8", "--in-groups", "n"], "n"),
    ],
)
def test_explain_says_what_is_wrong(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SIZES, *words]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "error", "why"),
    [
        ({"of": "n"}, ValueError, "'n' is in groups; one of m, k can be"),
        ({"groups": 0}, ValueError, "the number of groups is 0"),
        ({"groups": 2.5}, TypeError, "the number of groups is 2.5; it must be an integer"),
        ({"groups": True}, TypeError, "an integer"),
        ({"offset_dtype": "int8"}, ValueError, "offset_dtype is 'int8'"),
        ({"dtype": "int8"}, ValueError, "dtype is 'int8'"),
    ],
)
def test_a_grouped_shape_that_is_none(
    changed: dict[str, Any], error: type[Exception], why: str
) -> None:
    given: dict[str, Any] = {"groups": 8, "dtype": "bfloat16", **changed}
    with pytest.raises(error, match=why):
        of_groups(64, 64, 64, **given)


def test_tiles_have_two_stages_in_each_of_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in those with the most groups, and with two buffers of D for TMA's stores."""
    found = Tiles(128, 256)
    assert found.objection("m", True) == ""
    one_stage = 4096 + found.out_bytes(2) + 2 * found.stage_bytes - 1
    monkeypatch.setattr(tiles, "_SHARED_BYTES", one_stage)
    assert found.stages(FEW_GROUPS, 1) == 2
    assert found.stages(MOST_GROUPS, 2) == 1
    assert found.objection("m", True) == "too few stages fit into shared memory"
