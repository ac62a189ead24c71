"""What makes the documentation site: the pages of rungs, notebooks, players, and the checker."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import check_site
import notebooks
import players
import pytest
import rung_pages

import tilewise

ROOT = Path(__file__).parents[1]
CLIMB = ROOT / "docs" / "climb.md"


# The checker

GOOD = {
    "index.html": '<a href="#here">x</a><h1 id="here">h</h1><a href="sub/b.html#there">b</a>'
    '<a href="https://other.example/x">abroad</a><a href="mailto:a@b.example">mail</a>'
    '<link rel="stylesheet" href="a.css"><img src="data:image/png;base64,AAAA">'
    '<link rel="canonical" href="https://here.example/">',
    "sub/b.html": '<a name="there"></a><a href="../">up</a><a href="../a%20b.txt">file</a>',
    "a.css": "p { background: url(data:image/png;base64,AAAA) }",
    "a b.txt": "",
}


def site(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_good_site_has_no_faults(tmp_path: Path) -> None:
    assert list(check_site.faults(site(tmp_path, GOOD))) == []
    assert check_site.main([str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('<a href="none.html">x</a>', "no such file"),
        ('<a href="sub/none/">x</a>', "no such file"),
        ('<a href="sub/">x</a>', "no such page"),
        ('<a href="#none">x</a>', "no such anchor"),
        ('<a href="sub/b.html#none">x</a>', "no such anchor"),
        ('<a href="../secret.html">x</a>', "leads out of the site"),
        ('<a href="http://plain.example/">x</a>', "no address of https"),
        ('<a href="file:///etc/passwd">x</a>', "no address of https"),
        ('<script src="https://cdn.example/x.js"></script>', "from a network"),
        ('<script src="//cdn.example/x.js"></script>', "from a network"),
        ('<script src="none.js"></script>', "no such file"),
        ('<link rel="stylesheet" href="https://fonts.example/css">', "from a network"),
        ('<link rel="preconnect" href="https://fonts.example">', "from a network"),
        ('<img src="https://pictures.example/a.png">', "from a network"),
        ('<img src="a.css" srcset="https://pictures.example/a.png 2x">', "from a network"),
        ('<iframe src="https://player.example/"></iframe>', "from a network"),
        ("<style>@import 'https://fonts.example/x.css';</style>", "from a network"),
        ('<p style="background: url(https://pictures.example/a.png)">x</p>', "from a network"),
    ],
)
def test_a_fault_is_found(
    more: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {**GOOD, "index.html": GOOD["index.html"] + more}
    (fault,) = check_site.faults(site(tmp_path, files))
    assert said in fault
    assert fault.startswith("index.html: ")
    assert check_site.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{fault}\n"


def test_a_style_sheet_that_loads_from_a_network(tmp_path: Path) -> None:
    files = {**GOOD, "a.css": "@font-face { src: url('https://fonts.example/f.woff2') }"}
    assert list(check_site.faults(site(tmp_path, files))) == [
        "a.css: loads https://fonts.example/f.woff2 from a network"
    ]


def test_links_from_a_servers_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of 404.html, at the address that the site was built for."""
    links = '<a href="/tilewise/">x</a><a href="/tilewise/sub/b.html#there">x</a>'
    folder = str(site(tmp_path, {**GOOD, "404.html": links}))
    monkeypatch.setenv("SITE_URL", "https://some.example/tilewise/")
    assert check_site.main([folder]) == 0
    monkeypatch.delenv("SITE_URL")
    assert check_site.main([folder]) == 1
    assert "404.html: /tilewise/: there is no such file" in capsys.readouterr().err
    monkeypatch.setenv("SITE_URL", "https://some.example/other/")
    assert check_site.main([folder]) == 1
    assert "leads out of the site" in capsys.readouterr().err


def test_a_folder_without_pages_is_no_site(tmp_path: Path) -> None:
    (fault,) = check_site.faults(tmp_path)
    assert "no page" in fault


# The climb


def test_the_climb_in_parts_has_all_of_it() -> None:
    made = rung_pages.split(CLIMB)
    assert list(made)[1:] == [uri for _, uri in rung_pages.pages()]
    whole = "\n".join(made.values()).replace("](../../", "](../")
    lines = [line for line in CLIMB.read_text("utf-8").splitlines() if line]
    missing = [line for line in lines if line not in whole]
    assert missing == [f"## {rung.number} {rung.name}" for rung in tilewise.RUNGS]
    assert "## matmul\n" in made["climb.md"]
    assert "## 5 tiled" not in made["climb.md"]


@pytest.mark.parametrize("rung", tilewise.RUNGS, ids=lambda rung: rung.name)
def test_a_rung_has_a_page(rung: tilewise.Rung) -> None:
    made = rung_pages.split(CLIMB)
    page = made[rung_pages.uri(rung)]
    assert page.startswith(f"# {rung.number} {rung.name}\n")
    assert [name[1] for name in players.MARK.finditer(page)] == [rung.name]
    source = rung.path.read_text("utf-8").rstrip("\n")
    shown = re.findall(r"\n    ```cuda\n(.*?)\n    ```", page, re.DOTALL)[-1]
    assert "\n".join(line.removeprefix("    ") for line in shown.split("\n")) == source
    assert f"({rung_pages.uri(rung)})" in made["climb.md"]
    assert ("What changed since" in page) == (rung.number > 1)


def test_a_climb_without_a_rung_is_told(tmp_path: Path) -> None:
    page = tmp_path / "climb.md"
    page.write_text(CLIMB.read_text("utf-8").replace("## 5 tiled\n", "## 5 another\n"))
    with pytest.raises(ValueError, match="no section '5 tiled'"):
        rung_pages.split(page)


# Players


def mark(name: str, picture: str = "") -> re.Match[str]:
    found = players.MARK.search(f"Words.\n\n<!-- player: {name} -->\n{picture}\n")
    assert found
    return found


def test_some_players_may_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(players.CHOSEN, raising=False)
    assert players.chosen() == [rung.name for rung in tilewise.RUNGS]
    monkeypatch.setenv(players.CHOSEN, "tiled naive")
    assert players.chosen() == ["naive", "tiled"]
    assert "left out" in players.figure(mark("warpgroup"), str)
    monkeypatch.setenv(players.CHOSEN, "tiled tield")
    with pytest.raises(ValueError, match="no rung: tield"):
        players.chosen()


def test_the_frame_of_a_player_has_a_link_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(players.CHOSEN, "tiled")
    figure = players.figure(mark("tiled"), lambda uri: f"../{uri}")
    assert figure.count('"../players/tiled.html"') == 2
    assert tilewise.rung("tiled").idea in figure
    assert "m = 16, n = 16, k = 24, tile 8" in figure
    assert "\n\n" not in figure  # or Markdown would end the block of HTML there
    assert "<img" not in figure
    with_picture = players.figure(mark("tiled", "![C <fills>](a.gif)"), str)
    assert '<img class="still" alt="C &lt;fills&gt;" src="a.gif"><p class="still"' in with_picture


# Notebooks


def notebook(folder: Path, *cells: dict[str, Any]) -> notebooks.Notebook:
    path = folder / "docs" / "notebooks" / "01-first.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))
    (found,) = notebooks.found(folder)
    return found


LINKS = "[2](02-next.ipynb) [c](../../docs/climb.md#x) [d](https://e.example/f.ipynb)"


def test_a_notebook_is_a_page(tmp_path: Path) -> None:
    dot = base64.b64encode(b"PNG").decode()
    found = notebook(
        tmp_path,
        {"cell_type": "markdown", "source": ["# A first kernel\n", "Some words. ", LINKS]},
        {"cell_type": "code", "source": "%%writefile a.cu\n__global__ void f() {}", "outputs": []},
        {"cell_type": "code", "source": ["print('a')\n", "1 + 1"], "outputs": [
            {"output_type": "stream", "name": "stdout", "text": ["a\n"]},
            {"output_type": "execute_result", "data": {"text/plain": ["2"]}},
            {"output_type": "display_data", "data": {"text/html": "<b>\n2</b>", "text/plain": "2"}},
            {"output_type": "display_data", "data": {"image/png": dot, "text/plain": "Figure"}},
            {"output_type": "error", "traceback": ["\x1b[31mError\x1b[0m", "in f"]},
        ]},
        {"cell_type": "code", "source": "'```'", "outputs": []},
        {"cell_type": "code", "source": [], "outputs": []},
    )  # fmt: skip
    assert (found.title, found.uri) == ("A first kernel", "notebooks/01-first.md")
    assert found.markdown() == (
        "# A first kernel\n\n"
        "[Download this notebook](01-first.ipynb) and run it: it needs no GPU.\n\n"
        "Some words. [2](02-next.md) [c](../climb.md#x) [d](https://e.example/f.ipynb)\n\n"
        "```cuda\n%%writefile a.cu\n__global__ void f() {}\n```\n\n"
        "```python\nprint('a')\n1 + 1\n```\n\n"
        "```text\na\n```\n\n```text\n2\n```\n\n"
        '<div class="output"><b> 2</b></div>\n\n'
        f'<img alt="What the cell above draws" src="data:image/png;base64,{dot}">\n\n'
        "```text\nError\nin f\n```\n\n"
        "````python\n'```'\n````\n"
    )


def test_a_notebook_without_a_heading_has_its_files_name(tmp_path: Path) -> None:
    found = notebook(tmp_path, {"cell_type": "markdown", "source": "words"})
    assert found.title == "01 first"
    assert found.markdown().startswith("# 01 first\n\n[Download")


def test_where_there_are_no_notebooks_there_are_no_pages(tmp_path: Path) -> None:
    assert notebooks.found(tmp_path) == []


# The workflow


def test_the_site_is_deployed_without_secrets() -> None:
    text = (ROOT / ".github" / "workflows" / "docs.yml").read_text("utf-8")
    assert "- run: make docs" in text
    assert "path: build/site" in text
    assert "secrets." not in text
    assert re.search(r"(?m)^site_dir: build/site$", (ROOT / "mkdocs.yml").read_text("utf-8"))
    assert re.search(r"(?m)^docs: \$\(READY\)$", (ROOT / "Makefile").read_text("utf-8"))
