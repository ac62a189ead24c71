"""benchmarks/fit_general.py: it reads what choices.py writes, and its fit finds the constants."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import script

from tilewise.bench.suites import Random
from tilewise.gemm.chip import H200
from tilewise.gemm.families.general import COSTS, Costs, General, seconds

SCRIPT = script("fit_general.py")
DTYPE = "float64"
DEPTHS = (16, 64, 256, 1024, 4096)
OTHER = Costs(start=2.0e-6, step=0.9e-6, step_of_tile=1.1e-6, tile=3.0e-6)
CLOCK = 1.5e9


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """What choices.py would write of a GPU that takes what the model says, with other constants
    and another clock, 3% more or less."""
    chip, drawn = replace(H200, clock=CLOCK), np.random.default_rng(3)
    rows = []
    for i, shape in enumerate(Random(60, 5).shapes()):
        m, n, k = shape.m, shape.n, DEPTHS[i % len(DEPTHS)]
        product = SCRIPT["of_shape"](m, n, k, DTYPE, shape.layout)
        us = 1e6 * seconds(product, chip, OTHER) * drawn.uniform(0.97, 1.03)
        ways = [{"family": "simt", "choice": {}, "us": 1.0}, {"family": "general", "us": us}]
        rows.append({"m": m, "n": n, "k": k, "layout": shape.layout, "ways": ways})
    return {"chip": asdict(chip), "dtype": DTYPE, "rows": rows}


def test_a_fit_finds_what_was_changed(record: dict[str, Any]) -> None:
    every = SCRIPT["points"](record)
    assert len(every) == 60
    found = SCRIPT["fit"](every, COSTS[DTYPE])
    for name, value in OTHER._asdict().items():
        assert getattr(found, name) == pytest.approx(value, rel=0.1), name
    before = max(abs(point.error(COSTS[DTYPE])) for point in every)
    assert before > 0.2
    errors = SCRIPT["foretold"](every, COSTS[DTYPE], 4)
    assert len(errors) == len(every)
    assert max(map(abs, errors)) < 0.06


def test_the_command(
    record: dict[str, Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "record.json"
    file.write_text(json.dumps(record))
    monkeypatch.setattr(sys, "argv", ["fit_general.py", str(file)])
    SCRIPT["main"]()
    now, others, fitted, constants = capsys.readouterr().out.splitlines()
    assert now.startswith("float64, 60 products, the present model: off by a factor of 1.")
    assert "cross-validated: off by a factor of 1.0" in others
    assert "fitted: off by a factor of 1.0" in fitted
    assert constants.startswith("{'start': ")
    monkeypatch.setattr(sys, "argv", ["fit_general.py", "--check", str(file)])
    SCRIPT["main"]()
    assert capsys.readouterr().out.splitlines() == [now]


def test_a_record_without_the_general_kernel(record: dict[str, Any]) -> None:
    rows = [{**row, "ways": row["ways"][:1]} for row in record["rows"]]
    with pytest.raises(ValueError, match="no time of the general kernel"):
        SCRIPT["points"]({**record, "rows": rows})


@pytest.mark.parametrize("dtype", COSTS)
def test_an_offer_expects_what_the_model_says(dtype: str) -> None:
    product = SCRIPT["of_shape"](300, 500, 70, dtype, "NT")
    (offer,) = General().offers(product, H200)
    assert offer.seconds == seconds(product, H200, COSTS[dtype])
