"""Watching any kernel: a trace of its own arrays, and the page that shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from player import Open, classes, seek
from signatures import SOURCE

from tilewise.errors import MemoryAccessError
from tilewise.kernel import Kernel
from tilewise.lens.declarations import element_size
from tilewise.lens.trace import record_launch
from tilewise.lens.watch import watch_launch
from tilewise.places import Dim3
from tilewise.specs.run import Prepared, prepare


def ready(name: str, grid: str, block: str, *args: str, shared: str = "0") -> Prepared:
    return prepare(Kernel(SOURCE, name), args, grid, block, shared, arch="sm_90a")


def trace(name: str, *words: str, blocks: tuple[Dim3, ...] = (), **more: Any) -> dict[str, Any]:
    return record_launch(ready(name, *words, **more), blocks=blocks).to_dict()


def said(found: dict[str, Any], block: int = 0) -> list[str]:
    return [x["say"] for x in found["blocks"][block]["steps"] if x["kind"] in ("load", "store")]


def test_arrays_of_one_dimension() -> None:
    found = trace("saxpy", "2", "64", "n=100", "a=2", "x=arange:n", "y=ones:n")
    x, y = found["arrays"]
    assert (x["name"], x["rows"], x["columns"], x["leading"]) == ("x", 4, 32, 32)
    assert (x["flat"], x["count"], x["dtype"]) == (True, 100, "float32")
    assert x["values"] == list(range(100))
    assert y["address"] % 32 == 0
    where = "elements 64 to 99 of"
    assert said(found, 1) == [
        f"36 of 64 threads load {where} x: 5 sectors, 90 % of them used.",
        f"36 of 64 threads load {where} y: 5 sectors, 90 % of them used.",
        f"36 of 64 threads store {where} y: 5 sectors, 90 % of them used.",
    ]
    stored = next(s for s in found["blocks"][1]["steps"] if s["kind"] == "store")
    assert stored["values"] == [2.0 * i + 1 for i in range(64, 100)]
    assert stored["at"] == list(range(64, 100))


def test_arrays_of_more_dimensions_and_those_that_nobody_wrote() -> None:
    found = trace("transpose", "1,1", "8,8", "random:2x3x4", "empty:n,m", "m=6", "n=4")
    first, second = found["arrays"]
    assert (first["rows"], first["columns"]) == (6, 4)
    assert "flat" not in first
    assert (second["rows"], second["columns"], second["values"]) == (4, 6, None)
    assert any("of in: " in each for each in said(found))


def test_types_of_each_array() -> None:
    found = trace("histogram", "1", "32", "arange:32", "32", "zeros:64")
    (load,) = (s for s in found["blocks"][0]["steps"] if s["kind"] == "load")
    assert load["values"] == list(range(32))
    assert load["array"] == "data"
    assert [x["dtype"] for x in found["arrays"]] == ["uint8", "uint32"]


def test_dynamic_shared_memory() -> None:
    found = trace("reversed", "1", "64", "arange:64", shared="4*64")
    (shared,) = found["shared"]
    assert (shared["bytes"], shared["element"], shared["rows"], shared["columns"]) == (
        256,
        4,
        2,
        32,
    )


@pytest.mark.parametrize(
    ("declared", "size"),
    [
        ("__shared__ double s[4][TILE];", 8), ("extern __shared__ unsigned char s[];", 1),
        ("__shared__ Odd s[4];", 4), ("__shared__ float t[4], s[4];", 4), ("", 4),
    ],
)  # fmt: skip
def test_the_element_of_a_shared_array(declared: str, size: int) -> None:
    assert element_size(declared, "s") == size


def test_faults_of_blocks_that_are_not_watched_are_found() -> None:
    words = ("saxpy", "4", "64", "n=256", "a=1", "x=zeros:256", "y=zeros:129")
    with pytest.raises(MemoryAccessError, match=r"y\[129\]"):
        watch_launch(ready(*words), blocks=[(0, 0, 0)])
    assert watch_launch(ready(*words[:5], "x=zeros:256", "y=zeros:256")).correct


def test_the_page(show: Open) -> None:
    found = trace("saxpy", "2", "64", "n=100", "a=2", "x=arange:n", "y=ones:n")
    tab = show(found)
    assert tab.inner_text("#title").replace("\N{MULTIPLICATION SIGN}", "x") == (
        "saxpy 2 x 1 blocks of 64 x 1 threads"
    )
    assert tab.eval_on_selector_all("#arrays h3", "all => all.map(x => x.textContent)") == [
        "x, 100 elements", "y, 100 elements"
    ]  # fmt: skip
    steps = found["blocks"][0]["steps"]
    load = next(i for i, s in enumerate(steps) if s["kind"] == "load" and s["array"] == "x")
    seek(tab, load)
    assert classes(tab, "#arrays .of-x .cell", "read") == list(range(64))
    assert tab.locator("#arrays .of-x .cell:not(.row)").count() >= 100
    store = next(i for i, s in enumerate(steps) if s["kind"] == "store")
    seek(tab, store)
    assert classes(tab, "#arrays .of-y .cell", "write") == list(range(64))
    tab.click("#arrays .of-y .cell >> nth=5")
    assert tab.inner_text("#story").startswith("It holds 11.")
    assert tab.is_hidden("#compared")  # with no product there is no untiled one


def test_arrays_called_as_a_products_are_none(show: Open) -> None:
    source = """
    __global__ void add(const float* a, const float* b, float* c) {
        int i = threadIdx.x;
        c[i] = a[i] + b[i];
    }
    """
    one = prepare(Kernel(source, "add"), ["ones:40", "ones:40", "empty:40"], "1", "40",
                  arch="sm_90a")  # fmt: skip
    tab = show(record_launch(one).to_dict())
    assert tab.get_attribute("#arrays", "class") == "flow"
    assert tab.inner_text("#arrays h3 >> nth=0") == "a, 40 elements"
    tab.hover("#arrays .of-a .cell >> nth=39")
    assert "a[39]" in tab.inner_text("#tip")
    assert "1" in tab.inner_text("#tip")


def test_a_large_array_is_drawn_coarser(show: Open) -> None:
    found = trace("saxpy", "1", "32", "n=32", "a=2", "x=zeros:20000", "y=zeros:20000")
    assert [x["values"] for x in found["arrays"]] == [None, None]
    tab = show(found)
    tab.hover("#arrays .of-x .cell >> nth=0")
    assert tab.inner_text("#tip").startswith("x[0] and others")
    assert np.prod([found["arrays"][0][x] for x in ("rows", "columns")]) == 20000
