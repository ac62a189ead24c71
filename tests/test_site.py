"""The documentation site, built strictly, and in a browser."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import answers
import check_site
import pytest
from reference import thorough

pytestmark = thorough
ROOT = Path(__file__).parents[1]
PLAYERS = ("tiled", "tiled_conflicts")  # those of all rungs take half a minute
TRIED = ("single_block", "tiled", "tiled_conflicts", "warpgroup")
WAIT = 20_000  # milliseconds


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, with the players of two rungs."""
    for package in ("mkdocs", "material"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {
        "TILEWISE_DOCS_PLAYERS": " ".join(PLAYERS), "TILEWISE_DOCS_TRY": " ".join(TRIED),
        "NO_MKDOCS_2_WARNING": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    environment.pop("SITE_URL", None)
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The address at which the site is served, as ``python -m http.server`` does."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


# What is made at build time


def test_the_navigation_has_lists_for_names_and_no_empty_sections() -> None:
    filled = pytest.importorskip("hooks", reason="mkdocs is not installed")._filled
    nav = [{"Home": "index.md"}, {"A": ["a.md", {"Notebooks": ["NOTEBOOKS"]}, {"R": ["RUNGS"]}]}]
    made: dict[str, Any] = {"RUNGS": [{"1 one": "one.md"}, {"2 two": "two.md"}], "NOTEBOOKS": []}
    rungs = {"R": [{"1 one": "one.md"}, {"2 two": "two.md"}]}
    assert filled(nav, made) == [{"Home": "index.md"}, {"A": ["a.md", rungs]}]


def test_a_link_out_of_docs_leads_to_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = pytest.importorskip("hooks", reason="mkdocs is not installed")

    def told(text: str, depth: int = 0) -> str:
        return str(hooks._UPWARD.sub(lambda link: hooks._link_upward(link, depth), text))

    monkeypatch.delenv(hooks.SOURCE, raising=False)
    assert told("[the readme](../README.md#install)") == "the readme (`README.md`)"
    assert told("x ([the readme](../README.md)).") == "x (the readme: `README.md`)."
    assert told("[README.md](../README.md)") == "`README.md`"
    assert told("[the climb](../climb.md)", depth=1) == "[the climb](../climb.md)"
    assert told("![a picture](../README.md)") == "![a picture](../README.md)"
    monkeypatch.setenv(hooks.SOURCE, "https://code.example/tilewise/")
    at = "https://code.example/tilewise/blob/HEAD/README.md#install"
    assert told("[the readme](../../README.md#install)", depth=1) == f"[the readme]({at})"
    with pytest.raises(FileNotFoundError, match=r"none\.md"):
        told("[none](../none.md)")


# In a browser

Open = Callable[..., Any]


@pytest.fixture
def visit(browser: Any, site: Path) -> Iterator[Open]:
    """Opens a page of the site, from its file; nothing may go wrong or come from elsewhere."""
    contexts: list[Any] = []
    said: list[str] = []

    def visit(page: str, at: str | None = None, width: int = 1280, **more: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **more)
        contexts.append(context)
        context.set_default_timeout(WAIT)
        tab = context.new_page()
        base = at or site.as_uri()
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on(
            "requestfailed",
            lambda request: said.extend(
                [] if "ABORTED" in request.failure else [f"{request.failure}: {request.url}"]
            ),
        )
        tab.on(
            "request",
            lambda request: said.extend(
                [] if request.url.startswith((base, "data:", "blob:", "about:")) else [request.url]
            ),
        )
        tab.goto(f"{base}/{page}")
        return tab

    yield visit
    for context in contexts:
        context.close()
    assert not said


def test_links_and_anchors_lead_somewhere_and_nothing_is_loaded_from_a_network(site: Path) -> None:
    assert list(check_site.faults(site)) == []
    assert len(list(site.rglob("*.html"))) > 50


def test_what_stands_for_players_is_not_searched(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text("utf-8")
    assert "bank conflicts" in index
    assert "needs JavaScript" not in index


def test_every_page_of_docs_is_there(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    assert [str(page) for page in pages if not (site / page.with_suffix(".html")).is_file()] == []


@pytest.mark.parametrize("page", ["index.html", "climb/05-tiled.html", "teaching.html"])
def test_a_player_draws_in_its_frame(visit: Open, page: str) -> None:
    tab = visit(page)
    frame = tab.frame_locator(".player iframe")
    tab.locator(".player").scroll_into_view_if_needed()
    frame.locator("#explore").click()  # it opens with its question
    cells = frame.locator("#shared .grid .cell")
    cells.first.wait_for()
    assert cells.count() >= 128
    before = frame.locator("body").get_attribute("data-step")
    frame.locator("#forward").click()
    assert frame.locator("body").get_attribute("data-step") != before
    alone = tab.locator(".player figcaption a").get_attribute("href")
    with closing(tab.context.new_page()) as other:
        other.goto(tab.evaluate("path => new URL(path, location.href).href", alone))
        other.wait_for_selector("body[data-step]")


def test_a_player_is_as_dark_as_its_page(visit: Open) -> None:
    """Whatever the system prefers: the reader chooses by the page's button."""
    schemes = set()
    tab = visit("climb/05-tiled.html", color_scheme="null")  # not emulated, as that holds in frames
    frame = tab.frame_locator(".player iframe")
    frame.locator("body[data-step]").wait_for()
    read = "body => parseInt(getComputedStyle(body).backgroundColor.match(/\\d+/)[0])"
    for _ in range(3):  # as the system prefers, light, dark
        scheme = tab.locator("body").get_attribute("data-md-color-scheme")
        tab.wait_for_timeout(300)
        shown = [each.locator("body").evaluate(read) for each in (tab, frame)]
        assert max(shown) < 60 if scheme == "slate" else min(shown) > 200, (scheme, shown)
        schemes.add(scheme)
        tab.locator("label[for^=__palette]:visible").click()
    assert schemes == {"default", "slate"}


@pytest.mark.parametrize("way", ["file", "served"])
def test_search_finds_a_word(visit: Open, way: str, request: pytest.FixtureRequest) -> None:
    at = request.getfixturevalue("served") if way == "served" else None
    tab = visit("climb/05-tiled.html", at)
    tab.locator(".md-search__input").click()
    tab.keyboard.type("cooperative launches")
    # The page shows what it finds for the first letters too, so this waits for the whole words'.
    first = tab.locator(".md-search-result__item:first-child > a[href*='launching.html']").first
    first.click()
    tab.wait_for_url("**/launching.html*")


def test_without_scripts_a_player_is_told_in_words(visit: Open) -> None:
    tab = visit("climb/05-tiled.html")
    tab.locator(".player iframe").wait_for()
    assert not tab.locator(".player .still").is_visible()
    tab = visit("climb/05-tiled.html", java_script_enabled=False)
    assert not tab.locator(".player iframe").is_visible()
    assert "loads a tile of A and of B" in tab.locator(".player").inner_text()
    tab = visit("index.html", java_script_enabled=False)
    picture = tab.locator(".player img.still")
    assert picture.is_visible()
    assert picture.evaluate("img => img.complete && img.naturalWidth > 0")


def test_every_page_fits_a_telephone(visit: Open, site: Path) -> None:
    tab = visit("index.html", width=390)
    wide = {}
    for page in sorted(site.rglob("*.html")):
        uri = page.relative_to(site).as_posix()
        if uri.startswith("players/") or uri == "404.html":  # whose addresses are a server's
            continue
        tab.goto(page.as_uri(), wait_until="domcontentloaded")
        width = tab.evaluate("document.documentElement.scrollWidth")
        if width > 390:
            wide[uri] = width
    assert wide == {}


# Python in the browser

# Milliseconds: two cores, and other tests beside it.
LONG = 600_000


@pytest.fixture(scope="module")
def python(browser: Any, served: str) -> Iterator[Any]:
    """The page that runs tilewise, whose Python is ready: to load it takes seconds."""
    context = browser.new_context(viewport={"width": 390, "height": 900}, color_scheme="dark")
    context.set_default_timeout(LONG)
    tab, said = context.new_page(), []
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda asked: said.append(asked.url) if served not in asked.url else None)
    tab.goto(f"{served}/try.html?rung=tiled_conflicts&m=32&n=32&k=32&rung2=tiled&tile2=16")
    if not tab.locator("#try").count():
        pytest.skip(tab.locator(".admonition").inner_text())
    tab.locator("#try[data-ready]").wait_for()
    yield tab
    context.close()
    assert [each for each in said if not each.startswith(("data:", "about:"))] == []


def choose(tab: Any, **chosen: Any) -> None:
    """Fill fields of the form."""
    for name, value in chosen.items():
        field = tab.locator(f"#try [name={name}]")
        if name.startswith(("rung", "tile")):
            field.select_option(str(value))
        else:
            field.fill(str(value))


def shown(tab: Any) -> list[Any]:
    """The counters of what was run; the page may not have said that something is wrong."""
    tab.locator(".try-result, #try-error:visible").first.wait_for()
    assert not tab.locator("#try-error").is_visible(), tab.locator("#try-error").inner_text()
    results = tab.locator(".try-result").all()
    return [json.loads(each.get_attribute("data-counters")) for each in results]


def test_an_address_with_what_is_not_offered(visit: Open, served: str) -> None:
    """It is told, and nothing else takes its place unnoticed."""
    tab = visit("try.html?rung=nosuch&tile=7&m=48", at=served)
    if not tab.locator("#try").count():
        pytest.skip(tab.locator(".admonition").inner_text())
    told = tab.locator("#try-error")
    assert "rung=nosuch, tile=7, which this page does not offer" in told.inner_text()
    chosen = [tab.locator(f"#try [name={name}]").input_value() for name in ("rung", "tile", "m")]
    assert chosen == ["tiled", "16", "48"]
    tab.goto(tab.url.partition("?")[0] + "?rung=tiled&tile=8")
    assert not told.is_visible()


def test_a_browser_shows_two_side_by_side_on_a_telephone(python: Any) -> None:
    """Those that the page's address names."""
    python.locator("[name=run]").click()
    conflicts, tiled = shown(python)
    assert tiled["shared_load_bank_conflicts"] == 0 < conflicts["shared_load_bank_conflicts"]
    head = python.locator(".try-beside th").all_inner_texts()
    assert head[-2:] == ["tiled_conflicts", "tiled"]
    assert python.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize(("rung", "tile"), [("tiled", 16), ("warpgroup", 128)])
def test_a_browser_counts_as_python_does(python: Any, rung: str, tile: int) -> None:
    asked = {"m": 33, "n": 20, "k": 17, "alpha": 2, "beta": 0.5}
    choose(python, rung=rung, tile=tile, rung2="", **asked)
    python.locator("[name=m]").press("Enter")
    (found,) = shown(python)
    rungs = [{"rung": rung, "tile": tile}]
    here = json.loads(answers.answer(json.dumps({"what": "run", "rungs": rungs, **asked})))
    assert found == here["results"][0]["counters"]
    assert "right against float64" in python.locator(".try-result").inner_text()
    assert f"rung={rung}&tile={tile}" in python.url


def test_a_browser_says_what_is_not_possible(python: Any) -> None:
    choose(python, rung="single_block", rung2="", m=64, n=64, k=64, alpha=1, beta=0)
    python.locator("[name=run]").click()
    python.locator("#try-error").wait_for()
    assert "at most 1,024; 64 x 64 is 4,096" in python.locator("#try-error").inner_text()


def test_a_browser_shows_the_player(python: Any) -> None:
    choose(python, rung="tiled", tile=8, m=16, n=16, k=16, alpha=1, beta=0)
    python.locator("[name=watch]").click()
    frame = python.frame_locator("#try-player iframe")
    frame.locator("body[data-step]").wait_for()
    frame.locator("#explore").click()
    assert frame.locator("#shared .grid .cell").count() >= 128


def test_what_runs_in_a_browser_can_be_stopped(python: Any) -> None:
    choose(python, rung="tiled", tile=16, rung2="", m=512, n=512, k=512, alpha=1, beta=0)
    python.locator("[name=run]").click()
    python.locator("[name=stop]").click()
    assert "Stopped" in python.locator("#try-status").inner_text()
    choose(python, m=16, n=16, k=16)
    python.locator("[name=run]").click()
    (found,) = shown(python)
    assert found["flops"] == 16 * 16 * (2 * 16 + 1)


def test_from_a_file_the_page_says_why_nothing_runs(visit: Open) -> None:
    tab = visit("try.html")
    told = tab.locator("#try-error, .admonition").first
    told.wait_for()
    assert "not in this build" in told.inner_text() or "Serve the site" in told.inner_text()
