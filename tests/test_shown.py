"""Results show themselves: a line at the prompt, tables in print and in a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import tilewise
from tilewise.explanation import explain_product, of_shape
from tilewise.gemm.chip import H200
from tilewise.gemm.family import Offer
from tilewise.gemm.plan import offers, plan_on
from tilewise.ladder.demo import multiply
from tilewise.ladder.run import run
from tilewise.launch import Finding, LaunchReport
from tilewise.lens.roofline import bound, find
from tilewise.lens.trace import record
from tilewise.lens.watch import Watch
from tilewise.shown import WIDTH, Shown, Table, element, expected_time, folded, index_of, named_type
from tilewise.tune import Timed, Tuned
from tilewise.warm import Warmed

A = np.ones((40, 40), np.float32)
KERNEL = tilewise.Kernel(
    'extern "C" __global__ void twice(int n, float* x) {\n'
    '    if (threadIdx.x == 0) printf("<b>%d</b>\\n", n);\n'
    "    if (threadIdx.x < n) x[threadIdx.x] *= 2;\n}\n",
    "twice",
)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (4.24e-6, "4.2 µs"),
        (9.9999e-3, "9,999.9 µs"),
        (9.99999999e-3, "10.000 ms"),
        (0.01041, "10.410 ms"),
        (0.01044, "10.440 ms"),
        (0.99999, "999.990 ms"),
        (0.9999999, "1.000 s"),
        (1234.5, "1,234.500 s"),
    ],
)
def test_an_expected_time_compares_with_others(seconds: float, shown: str) -> None:
    assert expected_time(seconds) == shown


def launched() -> LaunchReport:
    return KERNEL.launch(1, 64, (40, np.ones(64, np.float32)), device="emulator")


def tuned() -> Tuned:
    product = of_shape(512, 512, 512, "bfloat16", "NN")
    found: list[Offer] = list(offers(product, H200))[:3]
    rows = tuple(Timed(each, 1e-6 * i, True) for i, each in enumerate(found, 1))
    return Tuned(product, H200, rows, chosen=found[1], kept=found[0])


RESULTS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "launch": (launched, ("twice", "1 block of 64 x 1", "global loads", "requests", "<b>40</b>")),
    "counters": (lambda: launched().counters, ("bank conflicts", "floating-point operations")),
    "resources": (lambda: launched().resources, ("registers a thread", "no spills")),
    "its launch": (lambda: launched().launch, ("64 threads",)),
    "profile": (lambda: tilewise.profile("tiled", 100, 100, 100),
                ("tiled: C = A·B, m = 100", "used of each sector", "occupancy", "warps")),
    "footprint": (lambda: tilewise.profile("tiled").report.footprint, ("sectors loaded",)),
    "occupancy": (lambda: tilewise.profile("tiled").occupancy, ("limited by warps",)),
    "work": (lambda: tilewise.profile("tiled").work, ("bytes of DRAM", "shared wavefronts")),
    "ceilings": (lambda: find("h200"), ("NVIDIA H200", "GB/s")),
    "roofline": (lambda: bound(tilewise.profile("tiled").work, find("h200")),
                 ("at least", "bound by", "shared memory", "100%")),
    "run": (lambda: run("tiled", A, A, device="emulator"),
            ("tiled: C = A·B", "right against float64", "bank conflicts")),
    "run of nothing": (lambda: run("tiled", A[:0], A, device="emulator"), ("no elements",)),
    "check": (lambda: run("tiled", A, A, device="emulator").check, ("right against float64",)),
    "explanation": (lambda: tilewise.explain(A, A, device="emulator"),
                    ("m = 40", "the general kernel", "gemm_general")),
    "explanation of a GPU": (
        lambda: explain_product(of_shape(512, 512, 512, "bfloat16", "NN"), H200),
        ("the Hopper kernel", "next best", "µs")),
    "plan": (lambda: plan_on(of_shape(512, 512, 512, "bfloat16", "NN"), H200),
             ("the Hopper kernel", "grid", "workspace")),
    "tuned": (tuned, ("the model's choice", "ratio", "kept")),
    "warmed": (lambda: Warmed("sm_90a", "H200", "/tmp", 3, 2, 0, ("k: why",), 1 << 20, 1.5),
               ("3 kernels of H200", "1.0 MiB in /tmp", "k: why")),
    "trace": (lambda: record("tiled", 8, 8, 8, tile=4), ("tiled, 2 blocks", "(1, 1, 0)")),
    "watch": (lambda: tilewise.watch("tiled", 8, 8, 8, tile=4), ("tiled",)),
    "gemm": (lambda: tilewise.Gemm.of(A, A), ("m = 40", "lda 40")),
    "demonstration": (lambda: multiply("emulator"), ("coalesced: C = A·B", "tiled: C = A·B")),
    "finding": (lambda: Finding("race", "two <threads> meet", "k.cu", 3),
                ("k.cu:3: race: two <threads> meet",)),
}  # fmt: skip


class Text(HTMLParser):
    """The text of some HTML, whose elements must all be closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags = "", set[str]()
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


@pytest.mark.parametrize(("make", "words"), RESULTS.values(), ids=RESULTS.keys())
def test_a_result_shows_itself(
    make: Callable[[], Any], words: tuple[str, ...], emulator: object
) -> None:
    result = make()
    line, text = repr(result), str(result)
    assert "\n" not in line
    assert len(line) <= 200
    assert line.startswith("<")
    assert line.endswith(">")
    for word in words:
        assert word in re.sub(r"\s+", " ", text), word
    assert max(map(len, text.splitlines())) <= WIDTH or "watch" in line
    page = result._repr_html_()
    if isinstance(result, Watch):
        return  # a page of its own, in a frame
    shown = Text(page)
    assert shown.tags <= {"div", "table", "thead", "tbody", "tr", "th", "td"}
    for word in words:
        assert word in re.sub(r"\s+", " ", shown.text), word


def test_a_list_of_results_is_short() -> None:
    assert len(repr([tuned(), tuned()])) < 400


def test_html_is_escaped() -> None:
    class Odd(Shown):
        def _summary(self) -> str:
            return "<script>1 & 2</script>"

        def _parts(self) -> list[str | Table]:
            return [self._summary(), Table([("<i>", '"')], ("<th>", "&"))]

    page = Odd()._repr_html_()
    assert "<script>" not in page
    assert "<i>" not in page
    assert "&lt;script&gt;1 &amp; 2&lt;/script&gt;" in page
    assert Text(page).text.split() == ["<script>1", "&", "2</script>", "<th>", "&", "<i>", '"']


def test_a_table_in_columns() -> None:
    table = Table([("one", "1"), ("three hundred", "300"), ("short",)], ("what", "count"))
    assert table.text() == "what           count\none                1\nthree hundred    300\nshort"
    assert Table([]).text() == ""


def test_a_last_column_of_words_is_wrapped() -> None:
    text = Table([("why", "because " * 30)], left=2).text()
    lines = text.split("\n")
    assert len(lines) > 2
    assert all(len(line) <= WIDTH for line in lines)
    assert all(line.startswith("     because") for line in lines[1:])


def test_lines_are_folded() -> None:
    assert max(map(len, folded("word " * 100).split("\n"))) <= WIDTH
    assert folded("  as it is " + 100 * "-") == "  as it is " + 100 * "-"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "None"), ([1], "a list"), (1, "an int"), (np.ones(2), "a numpy.ndarray"),
        (object, "a type"),
    ],
)  # fmt: skip
def test_a_value_has_its_type_in_words(value: Any, words: str) -> None:
    assert named_type(value) == words


def test_an_element_is_spelled_as_in_c() -> None:
    assert element("tile", (1, 0)) == "tile[1][0]"
    assert element("x", [np.int64(3)]) == "x[3]"
    assert element("value", ()) == "value"
    assert element("f", (3, 0), "x") == "f[3][0].x"
    assert element("tile", (1, 0), in_python=True) == "tile[1, 0]"


@pytest.mark.parametrize(
    ("number", "extents", "index"),
    [
        (17, (2, 3, 4), (1, 1, 1)), (24, (2, 3, 4), (2, 0, 0)), (-1, (2, 3, 4), (-1, 2, 3)),
        (5, (4,), (5,)),
    ],
)  # fmt: skip
def test_only_the_first_index_is_out_of_bounds(
    number: int, extents: tuple[int, ...], index: tuple[int, ...]
) -> None:
    assert index_of(number, extents) == index
