"""benchmarks/choose_kernels.py, tiling_ways.py, way_choice.py: which tilings the planner has."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scripts import script

from tilewise.explanation import LAYOUTS
from tilewise.gemm.families.hopper.tilings import FILE, chosen

COMMAND = script("choose_kernels.py")
CHOICE = script("way_choice.py")
WAYS = script("tiling_ways.py")
RNG = np.random.default_rng(1)


def products(times: Any, model: Any = None, share: float = 0.0) -> Any:
    """Return products that the model expects to take other times than they do."""
    model = times if model is None else model
    return CHOICE["Products"](model, times, np.ones(len(times)), times, share)


def test_what_is_added_lowers_the_loss_most() -> None:
    """Way 2 is fast where way 0 is slow; way 1 is hardly better than way 0 anywhere."""
    times = np.array([[1.0, 0.9, 3.0], [4.0, 4.0, 1.0], [2.0, 1.9, 9.0]])
    assert CHOICE["widen"](np.log(times), [0], 1) == [0, 2]
    assert CHOICE["widen"](np.log(times), [0], 9) == [0, 2, 1]
    assert CHOICE["choose"](products(times), [0], 2) == [0, 2]
    # No way is taken twice, even if no other one improves anything.
    assert CHOICE["widen"](np.log([[1.0, 2.0, 3.0]] * 2), [0], 2) == [0, 1, 2]


def test_a_way_that_the_model_prefers_wrongly_is_not_taken() -> None:
    """Way 1 is expected to be the fastest everywhere, and is the slowest."""
    times = np.array([[2.0, 8.0, 1.0], [2.0, 8.0, 1.5]])
    model = np.array([[2.0, 0.5, 1.0], [2.0, 0.5, 1.0]])
    found = products(times, model)
    assert CHOICE["choose"](found, [0], 2) == [0, 2]
    assert found.slowdown([0, 2]) == 0
    assert found.loss([0, 1]) > found.loss([0]) > found.loss([0, 2])


def test_a_large_slowdown_counts_more_than_several_small_ones() -> None:
    small = products(np.array([[1.2, 1.0], [1.2, 1.0]]))
    large = products(np.array([[1.44, 1.0], [1.0, 1.0]]))
    assert small.slowdown([0]) == pytest.approx(large.slowdown([0]))
    assert small.loss([0]) < large.loss([0])


def test_ways_without_which_nothing_is_slower_are_left_out() -> None:
    times = RNG.uniform(1.0, 2.0, (40, 6))
    times[:, 2] = times[:, 4] * 1.001  # never the fastest
    times[:, 5] = times.max(1) * 2  # the slowest everywhere, but it stays
    assert CHOICE["without_spare"]([np.log(times)], [5], 5) == [5]
    left = CHOICE["without_spare"]([np.log(times)], list(range(6)), 5)
    assert 2 not in left
    assert 5 in left
    fastest = set(times.argmin(1).tolist())
    assert fastest <= {*left}
    # In another sample of products way 2 is the fastest.
    others = times.copy()
    others[:, 2] = 0.5
    assert 2 in CHOICE["without_spare"]([np.log(times), np.log(others)], list(range(6)), 5)


def test_a_bias_is_how_far_the_model_is_off_for_a_way() -> None:
    """Few times give a small bias, and a time that is far from the fastest counts for nothing."""
    ways = SimpleNamespace(
        tilings=range(3), problem=dict, timed=dict, expected=lambda _: np.ones(3)
    )
    rows = [{0: 1.0, 1: 1.21}, {0: 1.0, 1: 1.21, 2: 5.0}]
    assert (WAYS["NEAR"], WAYS["DOUBTED"]) == (1.4, 6)
    # Way 1 takes 1.1 times as long as the mean of two ways, on two products of eight.
    assert WAYS["biases"](ways, rows) == pytest.approx(np.log([1 / 1.1, 1.1, 1.0]) * 2 / 8)
    assert WAYS["biases"](ways, []) == pytest.approx(np.zeros(3))


def test_the_file_is_what_is_written_of_it() -> None:
    every = json.loads(FILE.read_bytes())
    assert COMMAND["text"]({x: chosen(x) for x in LAYOUTS}, every["made"]) == FILE.read_text(
        "utf-8"
    )


def test_a_layout_is_chosen_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tilings.json"
    file.write_bytes(FILE.read_bytes())
    shapes = itertools.product((1024, 4096), (1024, 4096), (64, 512))
    tilings = [row for row in chosen("TT") if not row[7]][:12]
    rows = [
        {
            "m": m, "n": n, "k": k, "layout": "TT",
            "ways": [
                [*sizes, stream_k, swapped, ping_pong, 10.0 + place]
                for place, (*sizes, stream_k, ping_pong, swapped) in enumerate(tilings)
            ],
        }
        for m, n, k in shapes
    ]  # fmt: skip
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"rows": rows}), "utf-8")
    main = COMMAND["main"]
    monkeypatch.setitem(main.__globals__, "FILE", file)
    monkeypatch.setitem(main.__globals__, "COUNTS", {"TT": 3})
    given = [str(record), "--layouts", "TT", "--products", "4", "--write"]
    main(given)
    before, after = json.loads(FILE.read_bytes()), json.loads(file.read_bytes())
    for layout in LAYOUTS:
        is_other = layout != "TT"
        assert (after["tilings"][layout] == before["tilings"][layout]) == is_other
        assert (after["made"][layout] == before["made"][layout]) == is_other
    assert after["made"]["TT"]["command"].endswith(" ".join(given))
    assert len(after["tilings"]["TT"]) == 3
    assert "64 64 1 1 1 0 0 0" in after["tilings"]["TT"]  # it can compute every aligned product
    assert capsys.readouterr().out.startswith("TT: ")
