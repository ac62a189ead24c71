"""Guided tours, without a browser: that each resolves, and that its numbers are counted."""

from __future__ import annotations

import ast
import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import SOURCE
from player import of_rung, sample
from reference import thorough

import tilewise.lens.tours
from tilewise.kernel import Kernel
from tilewise.ladder.rungs import RUNGS, rung
from tilewise.ladder.watched import Sizes, sizes
from tilewise.lens.player import page
from tilewise.lens.profiling import profile
from tilewise.lens.tours.find import GUIDES, tour_of
from tilewise.lens.tours.run import Run
from tilewise.lens.tours.stop import Stop, Tour, ask
from tilewise.lens.tours.tiles import ratio
from tilewise.lens.trace import record

HTML = Path(tilewise.lens.tours.__path__[0]).parents[0] / "player" / "one.html"
NAMES = [each.name for each in RUNGS]
# Those that are emulated in a second; the others take some.
QUICK = NAMES[:8]
PANELS = (
    "traffic", "requests", "sum", "arrivals", "shared", "banks", "threads", "source", "stages",
    "warps", "pieces", "fragments",
)  # fmt: skip

each_rung = pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=thorough) for name in NAMES]
)


@cache
def traced(name: str, m: int, n: int, k: int, tile: int | None) -> dict[str, Any]:
    found: dict[str, Any] = record(name, m, n, k, tile=tile).to_dict()
    return found


def odd(name: str) -> list[tuple[int, int, int, int | None]]:
    """Sizes that no tile divides, one element, and one phase."""
    at = sizes(rung(name))
    # Without a TMA so much of a long k is copied that the recording would be cut.
    k = at.k - 5 if at.k > 8 and rung(name).needs != "sm_90a" else min(at.k - 1, 9)
    return [
        (max(1, at.m - 3), at.n - 1, k, at.tile), (1, 1, 1, at.tile),
        (at.m // 2 + 1, at.n // 2 + 1, 3, at.tile),
    ]  # fmt: skip


def test_every_rung_has_a_tour() -> None:
    assert list(GUIDES) == NAMES


def check(tour: Tour, trace: dict[str, Any]) -> None:
    assert tour.is_of_rung
    assert tour.question.endswith("?")
    assert 6 <= len(tour.stops) <= 12
    assert sum(stop.ask is not None for stop in tour.stops) >= 2
    assert [stop.step for stop in tour.stops] == sorted(stop.step for stop in tour.stops)
    names = {each["name"] for each in trace["arrays"]} | set(PANELS)
    for stop in tour.stops:
        assert stop.step < len(trace["blocks"][stop.block]["steps"])
        assert stop.look
        assert set(stop.look) <= names
        for text in (stop.title, stop.text, stop.before):
            assert not re.search(r"\{|\}|None|nan", text)
            assert not text or text == stop.title or text[-1] in ".?"
        if stop.ask is None:
            continue
        assert stop.before
        assert 3 <= len(stop.ask.choices) <= 4
        assert len(set(stop.ask.choices)) == len(stop.ask.choices) == len(stop.ask.remarks)
        assert not stop.ask.remarks[stop.ask.right]
    assert json.loads(json.dumps(tour.to_dict())) == tour.to_dict()


@pytest.mark.parametrize(
    "name",
    [x if x in (*QUICK, "specialized") else pytest.param(x, marks=thorough) for x in NAMES],
)
def test_a_tour_as_it_is_watched(name: str) -> None:
    trace = of_rung(name)
    check(tour_of(trace), trace)


@pytest.mark.sampled(2)
@each_rung
def test_a_tour_at_other_sizes(name: str) -> None:
    for at in odd(name):
        trace = traced(name, *at)
        check(tour_of(trace), trace)


def test_the_command_of_the_readme() -> None:
    trace = traced("tiled", 9, 7, 5, 4)
    tour = tour_of(trace)
    check(tour, trace)
    assert tour.question == "How can 4 times fewer loads give the same product?"
    first = next(stop for stop in tour.stops if stop.ask)
    assert first.ask is not None
    # 16 threads load 4 rows of 4 values, 20 bytes apart: the last begins a sector of its own.
    assert first.ask.answer == 3


@thorough
@pytest.mark.parametrize("name", ["warpgroup", "specialized", "persistent"])
def test_a_tour_of_what_was_cut(name: str) -> None:
    at = sizes(rung(name))
    trace = traced(name, at.m - 3, at.n - 1, at.k - 5, at.tile)
    assert trace["blocks"][0]["cut"]
    assert 2 <= len(tour_of(trace).stops) <= 12


# ---- the answers, counted another way ----

Answers = dict[str, int]


def turns(places: list[int], words: int = 1) -> int:
    """Of a warp's lanes, 4 bytes by 4: turns that the busiest bank takes, part by part."""
    at_once = 32 // words
    found = 0
    for first in range(0, 32, at_once):
        wanted = {p // 4 + w for p in places[first : first + at_once] for w in range(words)}
        found += max(Counter(word % 32 for word in wanted).values())
    return found


def answers(name: str, at: Sizes) -> Answers:
    """Each prediction by its stop's title, from sizes alone: no trace is looked at."""
    m, n, k, tile = at.m, at.n, at.k, at.tile or 0
    macros = rung(name).macros(at.tile) if at.tile else {}
    one = macros.get("THREAD_M", 1)
    other = macros.get("THREAD_N", 1)
    deep = macros.get("BLOCK_K", tile)
    phases = k // deep if deep else 0
    stages = macros.get("STAGES", 4)
    lanes = range(32)
    found: dict[str, Callable[[], Answers]] = {
        "single_thread": lambda: {
            "The first load of A": 32, "Along k": k, "The next element": k,
        },
        "single_block": lambda: {"What B is asked for": 32 // m, "What A is asked for": m},
        "naive": lambda: {"A warp loads B": 1, "A warp loads A": 32},
        "coalesced": lambda: {
            "A warp loads B": 32 * 4 // 32, "A warp loads A": 1, "Still loaded too often": tile,
        },
        "tiled": lambda: {
            "One value each": 32 // tile * (tile * 4 // 32), "The first barrier": 2,
            "How often a value is read": tile,
        },
        "tiled_conflicts": lambda: {
            "A column, not a row": turns([4 * (t % tile * tile + t // tile) for t in lanes]),
            # Four steps of the loop are read at once, 16 bytes a lane, by each of two warps.
            "Reading down a column":
                tile * tile // 32 * (turns([4 * tile * (t % tile) for t in lanes], 4) - 4),
        },
        "tiled_branchless": lambda: {
            "Who loads?": tile * tile, "What do they load?": m % tile * tile,
        },
        "thread_tile_1d": lambda: {
            "Every thread loads several": 32 // deep * (deep * 4 // 32),
            "A column from few values": one + 1,
        },
        "thread_tile_2d": lambda: {
            "Lanes walk along k": 32 // deep * (deep * 4 // 32),
            "Padding": turns([4 * (t % deep * (tile + 4) + t // deep) for t in lanes]),
            "The outer product": one + other,
        },
        "vectorized": lambda: {
            "16 bytes a lane": 32 * 16,
            "The lanes read B":
                2 * (turns([4 * (t % (tile // other) * other) for t in lanes], 4) - 4),
        },
        "warp_tile": lambda: {
            "Loads as before": 32 * 16 // 32, "The lanes read A": 4,
            "The lanes read B": 0,
        },
        "double_buffered": lambda: {"A group of copies": 0, "What a barrier says": phases},
        "tuned": lambda: {"A group of copies": 0, "Several phases ahead": stages - 1},
        "tensor_core": lambda: {
            "A lane gathers its part of A": macros["WARP_M"] // 16 * 4,
            "A lane gathers its part of B": macros["WARP_N"] // 8 * 4,
            "The tensor core multiplies": 16 * 8 * 16,
        },
        "ldmatrix": lambda: {
            "A swizzle in place of padding": 0, "ldmatrix": 4,
            "The tensor core multiplies": 16 * 8 * 16,
        },
        "multistage": lambda: {
            "A group of copies": 0, "A ring of stages": stages - 1, "ldmatrix": 4,
            "What a barrier says": phases,
        },
        "warpgroup": lambda: {
            "A box is copied": 1, "wgmma": 64 * n * 16,
            "What is left of the old order": phases,
        },
        "specialized": lambda: {
            "As far as the ring reaches": stages, "wgmma": 64 * n * 16,
            "Who waits for whom": 1,
        },
        "persistent": lambda: {
            "Who loads B?": n // 64 // 2, "As far as the ring reaches": stages,
            "wgmma": 64 * n * 16,
        },
    }  # fmt: skip
    return found[name]()


@each_rung
def test_predictions_are_what_sizes_say(name: str) -> None:
    at = sizes(rung(name))
    asked = {
        stop.title: stop.ask.answer for stop in tour_of(of_rung(name)).stops
        if stop.ask is not None and stop.ask.answer is not None
    }  # fmt: skip
    assert asked == answers(name, at)


@pytest.mark.sampled(3)
@each_rung
def test_a_warp_s_sectors_are_those_that_the_emulator_counted(name: str) -> None:
    """Over all warps of each access to global memory, at aligned sizes and others."""
    for trace in (of_rung(name), traced(name, *odd(name)[2])):
        for number in range(len(trace["blocks"])):
            run = Run(trace, number)
            for i in run.each(space="global"):
                warps = {thread // 32 for thread in run.who(i)}
                assert (
                    sum(run.sectors(i, warp) for warp in warps)
                    == trace["blocks"][number]["steps"][i]["sectors"]
                )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["tiled", "tiled_conflicts", "thread_tile_1d"])
def test_totals_are_the_profile_s(name: str) -> None:
    """Of all blocks together: requests, sectors and conflicts, as the whole launch counts them."""
    at = sizes(rung(name))
    x, y, _ = of_rung(name)["grid"]
    every = [(i, j, 0) for i in range(x) for j in range(y)]
    trace = record(name, at.m, at.n, at.k, tile=at.tile, blocks=every).to_dict()
    runs = [Run(trace, i) for i in range(len(every))]
    counters = profile(name, at.m, at.n, at.k, tile=at.tile).counters
    for kind, space in (("load", "global"), ("load", "shared"), ("store", "shared")):
        for what in ("requests", "sectors" if space == "global" else "conflicts"):
            called = f"{space}_{kind}_{what if what != 'conflicts' else 'bank_conflicts'}"
            assert sum(run.total(what, kind, space) for run in runs) == getattr(counters, called)
    assert sum(run.loaded("a", "b") for run in runs) == 2 * at.m * at.n * at.k // (at.tile or 1)


def test_an_answer_follows_the_trace() -> None:
    """Lanes that load from other places touch other sectors: the answer is not written down."""
    trace = copy.deepcopy(of_rung("tiled"))
    steps = trace["blocks"][0]["steps"]
    load = next(s for s in steps if (s["kind"], s.get("array")) == ("load", "a"))
    load["at"] = list(range(len(load["at"])))  # side by side
    asked = next(stop.ask for stop in tour_of(trace).stops if stop.ask)
    assert asked is not None
    assert asked.answer == 4  # 32 lanes of 4 bytes, side by side
    load["at"] = [24 * (i % 16) for i in range(len(load["at"]))]  # a column
    asked = next(stop.ask for stop in tour_of(trace).stops if stop.ask)
    assert asked is not None
    assert asked.answer == 16
    assert asked.choices[asked.right] == "16 sectors"


def test_choices() -> None:
    found = ask("How many?", 4, "sector", (4, 1, 1, 32, 8, 64), {1: "no", 4: "never said"})
    assert found.choices == ("1 sector", "4 sectors", "8 sectors", "32 sectors")
    assert (found.right, found.remarks) == (1, ("no", "", "", ""))
    assert ask("How many?", 0, "conflict", (0, 0)).choices == (
        "0 conflicts", "1 conflict", "2 conflicts",
    )  # fmt: skip
    assert ask("How many?", 1, "matrix", ()).choices == ("1 matrix", "2 matrices", "4 matrices")


# ---- no number is typed ----


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """The literal parts of a module's strings, but for docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documents = {
        id(node.body[0].value) for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body
        and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in documents:
            continue
        if isinstance(node.value, str):
            yield node.lineno, node.value


def test_no_number_in_a_sentence_is_typed() -> None:
    folder = Path(tilewise.lens.tours.__path__[0])
    allowed = r"(warp|Warp|Thread|thread) 0|n - 1|thread_tile_.d"
    found = [
        f"{path.name}:{line}: {text}"
        for path in sorted(folder.glob("*.py")) for line, text in sentences(path)
        if " " in text and re.search(r"\d", re.sub(allowed, "", text))
    ]  # fmt: skip
    assert found == []


# ---- kernels that are not on the ladder ----


def test_a_kernel_of_one_s_own() -> None:
    trace = record(Kernel(SOURCE, "talks"), 8, 8, 8, tile=4).to_dict()
    tour = tour_of(trace)
    assert not tour.is_of_rung
    assert tour.question == "What does talks do?"
    assert tour.sentences[0] == (
        "C (8 x 8) is the product of A (8 x 8) and B (8 x 8). 4 blocks of 16 threads compute it."
    )
    assert all(stop.ask is None for stop in tour.stops)


def test_a_launch_that_is_no_product() -> None:
    source = """__global__ void transpose(int n, const float* x, float* y) {
        __shared__ float tile[32][32];
        int i = blockIdx.x * 32 + threadIdx.x, j = blockIdx.y * 32 + threadIdx.y;
        tile[threadIdx.x][threadIdx.y] = x[j * n + i];
        __syncthreads();
        y[i * n + j] = tile[threadIdx.x][threadIdx.y];
    }"""
    x = np.ones((64, 64), np.float32)
    watched = Kernel(source, "transpose").watch((2, 2), (32, 32), [64, x, np.zeros_like(x)])
    tour = tour_of(watched.trace.to_dict())
    assert tour.sentences == (
        "4 blocks of 1,024 threads (32 warps) run.",
        "Block (0, 0) loads 1,024 values in 128 sectors, stores 1,024 values and waits at 1 "
        "barrier.",
    )
    assert [(stop.title, stop.look[0]) for stop in tour.stops] == [
        ("The first load", "x"), ("The worst bank conflict", "banks"),
        ("The first barrier", "arrivals"), ("The access that wastes most", "y"),
    ]  # fmt: skip
    assert "make 992 conflicts" in tour.stops[1].text  # 31 more turns, 32 warps


def test_a_kernel_that_only_has_a_rung_s_name() -> None:
    source = rung("tiled").path.read_text(encoding="utf-8") + "\n// mine\n"
    trace = record(Kernel(source, "tiled", {"real": "float", "TILE": 4}), 8, 8, 8, tile=4).to_dict()
    assert trace["title"] == "tiled"
    tour = tour_of(trace)
    assert not tour.is_of_rung
    assert "The first barrier" in [stop.title for stop in tour.stops]


def strided(index: str) -> Tour:
    source = f"""extern "C" __global__ void own(int m, int n, int k, float alpha, const float* a,
        int lda, const float* b, int ldb, float beta, float* c, int ldc) {{
        c[threadIdx.x] = a[{index}];
    }}"""
    return tour_of(record(Kernel(source, "own"), 32, 32, 32, tile=32).to_dict())


def test_the_worst_access_is_pointed_at() -> None:
    worst = next(s for s in strided("threadIdx.x * 32").stops if "wastes" in s.title)
    assert "side by side, 128 would be enough" in worst.text  # 32 warps, each 4 sectors
    assert worst.look[0] == "a"
    assert not [s for s in strided("threadIdx.x").stops if "wastes" in s.title]


def test_a_kernel_that_does_nothing_has_no_stops() -> None:
    trace = sample()
    trace["source"] = "nothing"
    for block in trace["blocks"]:
        block["steps"] = [step for step in block["steps"] if step["kind"] == "end"]
    tour = tour_of(trace)
    assert tour.stops == ()
    assert page(trace)


def test_what_the_page_knows_has_a_place() -> None:
    """What stops look at are ids of the page, or will be: no stop has only such."""
    ids = set(re.findall(r'id="([\w-]+)"', HTML.read_text(encoding="utf-8")))
    for name in QUICK:
        for stop in tour_of(of_rung(name)).stops:
            assert {x for x in stop.look if len(x) > 1} & ids or set(stop.look) & {"a", "b", "c"}


def test_stops_as_data() -> None:
    plain = Stop(3, "t", "x.", ("a",)).to_dict()
    assert plain == {
        "block": 0, "step": 3, "title": "t", "text": "x.", "look": ["a"], "warp": 0,
        "sectors": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "fewer", "words"),
    [
        (3072, 384, "8"),
        (10, 4, "2.5"),
        (10, 3, "3.33"),
        (786_432, 9216, "85"),
        (99_960, 10, "9,996"),
    ],
)
def test_how_many_times_fewer(more: int, fewer: int, words: str) -> None:
    assert ratio(more, fewer) == words
