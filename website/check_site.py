"""Checks a built site: each link and anchor leads somewhere, and nothing is loaded from a network.

``python website/check_site.py build/site``; ``SITE_URL`` in the environment is the address that the
site was built for, as for MkDocs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {
    "script": ("src",), "img": ("src",), "iframe": ("src",), "source": ("src",), "video": ("src",),
    "audio": ("src",), "embed": ("src",), "object": ("data",), "use": ("href",), "image": ("href",),
}  # fmt: skip
"""What a browser loads by itself, by the element's name: the attributes with its address."""
NOT_LOADED = {"canonical", "alternate", "next", "prev", "edit", "license"}
"""Of a ``link``, what it may say that is only an address."""
_CSS = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")


@dataclass
class Document:
    """A page: its anchors, its links, and what it loads."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.document = Document()
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        for name in ("id", "name"):
            if given.get(name) and (name == "id" or tag == "a"):
                self.document.anchors.add(given[name])
        if tag == "a" and "href" in given:
            self.document.links.append(given["href"])
        elif tag == "link" and not NOT_LOADED & set(given.get("rel", "").split()):
            self.document.loads.append(given.get("href", ""))
        self.document.loads += [given[x] for x in LOADS.get(tag, ()) if given.get(x)]
        for part in given.get("srcset", "").split(","):
            self.document.loads += part.split()[:1]
        self.document.loads += _addresses(given.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.document.loads += _addresses(data)


def _addresses(style: str) -> list[str]:
    """What a style sheet loads."""
    return [one or other for one, other in _CSS.findall(style)]


def read(text: str) -> Document:
    """What a page has."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.document


def faults(site: Path, root: str = "/") -> Iterator[str]:
    """What is wrong with a site, a line each.

    Parameters
    ----------
    site : Path
        Its folder.
    root : str
        The path of its address: where it is on its server.
    """
    pages = {
        file.relative_to(site).as_posix(): read(file.read_text(encoding="utf-8"))
        for file in sorted(site.rglob("*.html"))
    }
    if not pages:
        yield f"{site}: there is no page"
    for uri, page in pages.items():
        for address in page.links:
            yield from _followed(site, root, pages, uri, address)
        for address in page.loads:
            if _is_abroad(address):
                yield f"{uri}: loads {address} from a network"
            else:
                yield from _followed(site, root, pages, uri, address)
    for file in sorted(site.rglob("*.css")):
        uri = file.relative_to(site).as_posix()
        for address in _addresses(file.read_text(encoding="utf-8")):
            if _is_abroad(address):
                yield f"{uri}: loads {address} from a network"


def _is_abroad(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def _followed(
    site: Path, root: str, pages: dict[str, Document], uri: str, address: str
) -> Iterator[str]:
    """What is wrong with an address within the site; of one outside of it, how it is written."""
    parts = urlsplit(address)
    if parts.scheme in ("data", "mailto", "javascript"):
        return
    if parts.scheme or parts.netloc:
        if parts.scheme != "https":
            yield f"{uri}: {address} is no address of https"
        return
    if not parts.path:
        target = uri
    elif parts.path.startswith("/"):  # of 404.html, which is shown at any address
        if not parts.path.startswith(root):
            yield f"{uri}: {address} leads out of the site"
            return
        target = unquote(parts.path.removeprefix(root)) or "index.html"
    else:
        file = (site / uri).parent / unquote(parts.path)
        try:
            target = file.resolve().relative_to(site.resolve()).as_posix()
        except ValueError:
            yield f"{uri}: {address} leads out of the site"
            return
    if not parts.path or target in pages:
        anchor = unquote(parts.fragment)
        known = pages[target].anchors
        if anchor and anchor not in known and not anchor.startswith("__"):
            yield f"{uri}: {address}: there is no such anchor"
    elif (site / target).is_dir():
        if not (site / target / "index.html").is_file():
            yield f"{uri}: {address}: there is no such page"
    elif not (site / target).is_file():
        yield f"{uri}: {address}: there is no such file"


def main(arguments: list[str]) -> int:
    """Print what is wrong; 1 if something is."""
    root = urlsplit(os.environ.get("SITE_URL", "")).path or "/"
    found = [fault for folder in arguments for fault in faults(Path(folder), root)]
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
