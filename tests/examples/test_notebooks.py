"""The notebooks of examples/notebooks: their form, and that their cells run and their checks check.

    python tests/examples/test_notebooks.py

brings notebooks that were edited in Jupyter into the form in which they are kept: without outputs.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
QUICKEST = "05_your_own_kernel"
EXERCISES = (1, 2, 3)
WIDEST = 112  # characters of a line: what a notebook's cell has room for
SECONDS = 240  # of one cell, on a machine that does other things too
SOLUTION = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")

# By notebook and exercise: what makes the solution wrong. A variant replaces one text by another.
WRONG: dict[tuple[str, int], list[tuple[str, str]]] = {
    ("01_first_kernel", 1): [("row < m && ", ""), ("col < n", "col <= n"), ("factor *", "1 *")],
    ("01_first_kernel", 2): [("TILE + threadIdx.y", "TILE + threadIdx.x"), ("p < k", "p + 1 < k")],
    ("01_first_kernel", 3): [
        ("beta == 0 ? alpha * sum : ", ""), (" + beta * c[at]", ""), ("? alpha * sum", "? sum / 2"),
    ],
    ("02_tiles", 1): [
        ("row < m && p + tx < k ?", "row < m ?"), ("p + ty < k && col < n ?", "p + ty < k ?"),
        ("if (row < m && col < n) ", ""),
    ],
    ("02_tiles", 2): [
        ("        __syncthreads();\n", ""), ("now ^= 1;", ""),
        ("now ^= 1;", "now ^= 1; __syncthreads();"),
    ],
    ("02_tiles", 3): [
        ("sa[ty + TILE / 2][i] * right", "sa[ty + TILE / 2][i] * sb[i][tx ^ 1]"),
        ("row + TILE / 2 < m", "row < m"), ("        __syncthreads();\n    }", "    }"),
    ],
    ("03_conflicts_and_occupancy", 1): [
        ("[33]", "[34]"), ("[33]", "[31]"), ("[tx][ty]", "[ty][tx]"),
    ],
    ("03_conflicts_and_occupancy", 2): [
        ("[tx][ty ^ tx]", "[tx][ty]"), ("[ty][tx ^ ty]", "[ty][tx]"),
        ("tile[32][32]", "tile[32][33]"),
    ],
    ("03_conflicts_and_occupancy", 3): [
        ("held[256]", "held[12288]"), ("held[256]", "held[255]"), ("half > 0", "half > 1"),
    ],
    ("04_the_climb", 1): [("2 * tile * tile", "tile * tile"), (" + m * n", "")],
    ("04_the_climb", 2): [("smallest *= 2", "smallest *= 3"), ("2 * ceilings", "ceilings")],
    ("04_the_climb", 3): [(", reverse=True", ""), ("real, key", "real[1:], key")],
    ("05_your_own_kernel", 1): [
        ("    __syncthreads();\n    for", "    for"),
        ("held[t] = t < n ? x[t] : 0", "held[t] = x[t]"),
        ("t < n ? x[t] : 0", "t < n ? x[t] : 1"),
    ],
    ("05_your_own_kernel", 2): [
        ("if (col >= n) return;", ""), ("y[col] = sum", "atomicAdd(&y[col], sum)"),
        ("i < m", "i < n"),
    ],
    ("05_your_own_kernel", 3): [
        ("i + 3 < n", "i < n"), ("i + 3 < n", "i + 3 < 0"), ("j < n", "j < n - 1"),
    ],
    ("06_matmul_in_a_model", 1): [("silu(acc)", "gelu(acc)"), (" * up", " + up")],
    ("06_matmul_in_a_model", 2): [("*= 2", "*= 3"), ("1.8 *", "1.2 *")],
    ("06_matmul_in_a_model", 3): [
        ("gelu(before), before", "gelu(before)"), ("), before", "), acc"),
    ],
}  # fmt: skip


def read(name: str) -> dict[str, Any]:
    """A notebook."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))
    return found


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def kept(text: str) -> str:
    """A notebook as it is kept: no outputs, no counts, and metadata that say what it is."""
    document = json.loads(text)
    cells = []
    for cell in document["cells"]:
        lines = source(cell).strip("\n").splitlines(keepends=True)
        tags = cell["metadata"].get("tags")
        plain = {
            "cell_type": cell["cell_type"],
            "execution_count": None,
            "id": cell["id"],
            "metadata": {"tags": tags} if tags else {},
            "outputs": [],
            "source": lines,
        }
        if cell["cell_type"] == "markdown":
            del plain["execution_count"], plain["outputs"]
        cells.append(plain)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def test_there_are_six() -> None:
    assert [name[:2] for name in NAMES] == ["01", "02", "03", "04", "05", "06"]


@pytest.mark.parametrize("name", NAMES)
def test_the_form(name: str) -> None:
    text = (FOLDER / f"{name}.ipynb").read_text("utf-8")
    assert text == kept(text)
    cells = json.loads(text)["cells"]
    ids = [cell["id"] for cell in cells]
    assert len(set(ids)) == len(ids)
    assert ids[0] == "question"
    assert re.search(r"\*\*[^*]+\?\*\*", source(cells[0]))  # one question, in bold
    code = [cell["id"] for cell in cells if cell["cell_type"] == "code"]
    assert code[:2] == ["install", "first-result"]
    texts = "".join(source(cell) for cell in cells)
    assert len(re.findall(r"\*\*(Guess|Before you run the next cell, guess):\*\*", texts)) >= 2
    told = [i for i in EXERCISES if f"### Exercise {i}:" in texts]
    assert told == list(EXERCISES)
    for i in EXERCISES:
        where = [ids.index(f"{part}-{i}") for part in ("exercise", "check", "solution")]
        assert where == list(range(where[0], where[0] + 3))
        assert len(SOLUTION.findall(source(cells[where[2]]))) == 1
        assert "notebook.check(" in source(cells[where[1]])
    assert ids[-1] == "next"
    wide = [line for cell in cells for line in cell["source"] if len(line.rstrip()) > WIDEST]
    assert [line for line in wide if "](" not in line] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_notebook_of_version_4(name: str) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbformat.validate(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4))


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_and_headings(name: str) -> None:
    links = [
        link
        for cell in read(name)["cells"] if cell["cell_type"] == "markdown"
        for link in LINK.findall(source(cell))
    ]  # fmt: skip
    assert sum("/docs/" in link for link in links) >= 2
    for link in links:
        path, _, anchor = link.partition("#")
        file = (FOLDER / urllib.parse.unquote(path)).resolve()
        assert file.is_file(), link
        if anchor:
            heads = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE)
            assert anchor in [
                re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads
            ]


# The first cell


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[str]]:
    """Runs the first cell, and tells what it would have installed."""
    inputs = pytest.importorskip("IPython.core.inputtransformer2", reason="needs IPython")
    (first,) = {source(read(name)["cells"][i]) for name in NAMES for i in (1, 2)
                if read(name)["cells"][i]["id"] == "install"}  # fmt: skip
    found: list[str] = []

    class Shell:
        def run_line_magic(self, name: str, line: str, **_: Any) -> None:
            assert name == "pip"
            names = {**scope}
            found.append(re.sub(r"\{(\w+)\}", lambda mark: str(names[mark[1]]), line))

    scope: dict[str, Any] = {"get_ipython": Shell}

    def run(is_there: bool) -> list[str]:
        spec: Any = object() if is_there else None
        monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
        exec(inputs.TransformerManager().transform_cell(first), scope)
        return found

    return run


def test_the_first_cell_installs_nothing_where_tilewise_is(
    installed: Callable[[bool], list[str]],
) -> None:
    assert installed(True) == []


def test_the_first_cell_installs_a_wheel_a_clone_or_from_an_index(
    installed: Callable[[bool], list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert installed(False) == ['install -q "tilewise[plot]"']
    monkeypatch.chdir(FOLDER)
    assert installed(False)[-1] == f'install -q "{ROOT}[plot]"'
    wheel = tmp_path / "tilewise-0.1.0-py3-none-any.whl"
    wheel.touch()
    monkeypatch.chdir(tmp_path)
    assert installed(False)[-1] == f'install -q "{wheel}[plot]"'


# The cells


def with_tries(name: str) -> tuple[list[dict[str, Any]], dict[str, bool]]:
    """The cells, and behind each solution the wrong variants, the solution, and their checks.

    Returns
    -------
    (list of cells, dict of str to bool)
        By the id of a check's cell, whether what it checks is right.
    """
    cells: list[dict[str, Any]] = []
    expected: dict[str, bool] = {}
    whole = read(name)["cells"]
    by_id = {cell["id"]: cell for cell in whole}
    for cell in whole:
        cells.append(cell)
        number = re.fullmatch(r"(check|solution)-(\d)", cell["id"])
        if number is None:
            continue
        i = int(number[2])
        if number[1] == "check":
            expected[cell["id"]] = False
            continue
        (solution,) = SOLUTION.findall(source(cell))
        tries = []
        for old, new in WRONG[name, i]:
            assert old in solution, (name, i, old)
            tries.append((solution.replace(old, new, 1), False))
        for j, (text, is_right) in enumerate([*tries, (solution, True)]):
            check = {**by_id[f"check-{i}"], "id": f"check-{i}-{j}"}
            cells += [{**by_id[f"exercise-{i}"], "id": f"try-{i}-{j}", "source": [text]}, check]
            expected[check["id"]] = is_right
    return cells, expected


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == QUICKEST else pytest.mark.thorough) for name in NAMES],
)
def test_cells_run_and_checks_tell_right_from_wrong(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("TILEWISE_FULL_TRACEBACK", raising=False)
    cells, expected = with_tries(name)
    made = nbformat.reads(json.dumps({**read(name), "cells": cells}), as_version=4)
    client = nbclient.NotebookClient(
        made, timeout=SECONDS, allow_errors=True, resources={"metadata": {"path": str(FOLDER)}}
    )
    client.execute()
    for cell in made.cells:
        if cell.cell_type != "code":
            continue
        errors = [each for each in cell.outputs if each.output_type == "error"]
        shown = [each.data for each in cell.outputs if "data" in each]
        may_fail = not expected.get(cell.id, True)  # as CUDA C++ that does not compile
        assert not errors or may_fail, f"{cell.id}: {errors[0].evalue}"
        if cell.id in expected and not errors:
            (checked,) = (data["text/plain"] for data in shown if "text/html" in data)
            told = f"{name}, {cell.id}: {checked}"
            assert checked.startswith("<Checked: "), told
            assert ("<Checked: Right" in checked) == expected[cell.id], told
        if "watch" in cell.id:
            assert any("<iframe srcdoc=" in data.get("text/html", "") for data in shown)
    pictures = sum(
        "image/png" in each.get("data", ())
        for cell in made.cells
        for each in cell.get("outputs", ())
    )
    assert pictures >= 1
    first = next(cell for cell in made.cells if cell.id == "first-result")
    assert first.outputs


if __name__ == "__main__":
    for path in NOTEBOOKS:
        path.write_text(kept(path.read_text("utf-8")), "utf-8")
