"""The lessons' figures are what the emulator counts."""

from __future__ import annotations

from typing import Any

import pytest
from reference import thorough

from tilewise.ladder import lessons
from tilewise.ladder.rungs import RUNGS, Rung, rung
from tilewise.lens.lesson_counts import LADDER, SIZE, before, chosen, count


def test_every_rung_of_many_blocks_is_there() -> None:
    kept = lessons.known()
    assert list(kept["rungs"]) == [each.name for each in LADDER]
    assert {kept[size] for size in ("m", "n", "k")} == {SIZE}
    for each in LADDER:
        row = kept["rungs"][each.name]
        assert row["against"] == before(each)
        assert row["counter"] == chosen(each, kept["rungs"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "each",
    [
        pytest.param(
            each, id=each.name, marks=[thorough] * (each.name not in ("tiled", "tiled_conflicts"))
        )
        for each in LADDER
    ],
)
@pytest.mark.usefixtures("emulator")
def test_counted_again(each: Rung) -> None:
    """They go stale with the kernel, its tile, or the compiler."""
    row = lessons.known()["rungs"][each.name]
    again = count(each)
    assert again == {key: row[key] for key in ("dtype", "tile", "counters")}


@pytest.mark.parametrize("each", LADDER[1:], ids=lambda each: each.name)
def test_it_falls_where_the_idea_says_so(each: Rung) -> None:
    rungs = lessons.known()["rungs"]
    row = rungs[each.name]
    now, was = (rungs[name]["counters"][row["counter"]] for name in (each.name, row["against"]))
    if each.name == "tiled_conflicts":
        assert now > was
    elif each.name == "tiled_branchless":
        assert now == was
    else:
        assert now < was


def test_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(was: int | None, now: int) -> dict[str, Any]:
        rungs: dict[str, Any] = {
            "tiled": {
                "against": "naive", "counter": "barriers", "dtype": dtype,
                "counters": {"barriers": now},
            },
            "naive": {"dtype": "float32", "counters": {"barriers": was}},
        }  # fmt: skip
        if was is None:
            rungs["tiled"]["against"] = None
        return {"m": 5, "n": 6, "k": 7, "rungs": rungs}

    dtype = "float32"
    for was, now, expected in (
        (2000, 1000, "Barriers fall from 2,000 to 1,000 (at 5 x 6 x 7)."),
        (0, 1000, "Barriers rise from 0 to 1,000 (at 5 x 6 x 7)."),
        (3, 3, "Barriers stay at 3 (at 5 x 6 x 7)."),
        (None, 3, "Barriers: 3 (at 5 x 6 x 7)."),
    ):
        document = kept(was, now)
        monkeypatch.setattr(lessons, "known", lambda document=document: document)
        assert lessons.sentence("tiled") == expected
        assert rung("tiled").lesson.endswith(expected)
    dtype = "float16"
    other = kept(2000, 1000)
    monkeypatch.setattr(lessons, "known", lambda: other)
    expected = "from 2,000 to 1,000 (at 5 x 6 x 7, of float32 and of float16)."
    assert lessons.sentence("tiled").endswith(expected)
    assert lessons.sentence("single_thread") == ""
    assert rung("single_thread").lesson == rung("single_thread").why


def test_every_rung_has_a_lesson() -> None:
    assert all(each.lesson.startswith(each.why) and each.lesson.endswith(".") for each in RUNGS)
