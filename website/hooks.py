"""MkDocs' hooks of the documentation site: the pages that are made, players, links to other files.

``mkdocs.yml`` names this module. In a page, ``<!-- player: tiled -->`` stands for the player of a
rung, and ``<!-- try it -->`` for the form of the page "Try it". In the navigation, ``RUNGS`` stands
for the pages of the climb, and ``NOTEBOOKS`` for those of the notebooks that there are.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import in_browser
import notebooks
import players
import rung_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[1]
SOURCE = "TILEWISE_SOURCE"
"""The environment variable with the repository's public address: links to its files go there."""
NOTEBOOKS = "notebooks.md"
"""The page of all notebooks, where there is one."""
_UPWARD = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that are made into the navigation."""
    overview = (Path(config.docs_dir) / NOTEBOOKS).is_file()
    made = {
        "RUNGS": [{name: uri} for name, uri in rung_pages.pages()],
        "NOTEBOOKS": [
            *([{"All notebooks": NOTEBOOKS}] if overview else []),
            *({each.title: each.uri} for each in notebooks.found(ROOT)),
        ],
    }
    config.nav = _filled(config.nav or [], made)
    return config


def _filled(entries: list[Any], made: dict[str, list[Any]]) -> list[Any]:
    """The navigation with lists in place of their names, and without empty sections."""
    out: list[Any] = []
    for entry in entries:
        if isinstance(entry, str):
            out += made.get(entry, [entry])
            continue
        ((title, content),) = entry.items()
        if isinstance(content, list):
            content = _filled(content, made)
        if content:
            out.append({title: content})
    return out


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the rungs, the players and the notebooks."""

    def add(uri: str, content: str | bytes) -> None:
        if (there := files.get_file_from_path(uri)) is not None:
            files.remove(there)
        files.append(File.generated(config, uri, content=content))

    chosen = players.chosen()
    config.extra["try_it"] = _try_it(files, config)
    for uri, text in rung_pages.split(Path(config.docs_dir) / "climb.md").items():
        add(uri, text)
    for name in chosen:
        add(players.uri(name), players.page(name))
    for each in notebooks.found(ROOT):
        add(each.uri, each.markdown())
        add(each.file_uri, each.path.read_bytes())
    return files


def _try_it(files: Files, config: MkDocsConfig) -> str:
    """Add what the page "Try it" needs; return its form, or why there is none."""
    try:
        needed = in_browser.files()
    except in_browser.MissingError as error:
        print(f"The page {in_browser.PAGE} runs nothing: {error}", file=sys.stderr)
        return in_browser.left_out(error)
    for uri, content in needed.items():
        given = (
            {"abs_src_path": str(content)} if isinstance(content, Path) else {"content": content}
        )
        files.append(File.generated(config, uri, **given))
    return in_browser.form()


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put players into a page, and have links to files outside of docs/ lead somewhere."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    elif page.file.src_uri == in_browser.PAGE:
        page.meta["hide"] = ["navigation", "toc"]
    elif page.file.src_uri.startswith(f"{rung_pages.FOLDER}/"):
        page.meta["hide"] = ["toc"]  # which leaves the player more room
    depth = page.file.src_uri.count("/")
    markdown = _UPWARD.sub(lambda link: _link_upward(link, depth), markdown)
    markdown = markdown.replace(in_browser.MARK, config.extra["try_it"])
    return players.MARK.sub(
        lambda mark: players.figure(mark, lambda uri: get_relative_url(uri, page.url)), markdown
    )


def _link_upward(found: re.Match[str], depth: int) -> str:
    """A link to a file outside of docs/: with no address of the repository its path in words.

    A notebook is a page of the site. A link within docs/ stays as it is, which the page's ``depth``
    in folders tells.
    """
    words, up, path, anchor = found.groups()
    if up.count("../") <= depth:
        return found[0]
    if not (ROOT / path).exists():
        raise FileNotFoundError(f"a page links to {path}, which is not there")
    for each in notebooks.found(ROOT):
        if each.path == ROOT / path:
            return f"[{words}]({each.uri})"
    if source := os.environ.get(SOURCE):
        return f"[{words}]({source.rstrip('/')}/blob/HEAD/{path}{anchor or ''})"
    if path in words or words in path:
        return f"`{path}`"
    before, behind = found.string[: found.start()][-1:], found.string[found.end() :][:1]
    return f"{words}: `{path}`" if (before, behind) == ("(", ")") else f"{words} (`{path}`)"
