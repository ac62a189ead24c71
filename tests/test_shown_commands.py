"""Every ``tilewise`` command of a page is one that the command line understands.

``tests/test_readme.py`` runs those of which a page shows the output. The others need a GPU, files
of the reader's, or minutes.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tilewise.cli.commands.launches import spread
from tilewise.cli.main import _parser

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))


PARSER = _parser()
COMMANDS = PARSER.commands


def blocks(text: str) -> list[str]:
    """The command lines of shell blocks."""
    found = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    lines = found.replace("\\\n", " ").splitlines()
    return [" ".join(line.partition("||")[0].split()) for line in lines if line[:9] == "tilewise "]


def mentions(text: str) -> list[str]:
    """What stands in the text as `` `tilewise ...` ``: seldom a whole command line."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(span.split()) for span in re.findall(r"`(tilewise [^`]+)`", prose)]


def understand(line: str) -> None:
    """Parse a command line, without carrying it out."""
    words = spread(shlex.split(line, comments=True)[1:])
    command = COMMANDS[words[0]]
    with command.make_context(words[0], list(words[1:])):
        pass


def unknown(mention: str) -> list[str]:
    """The words of a mention that should be a command or its options, and are not."""
    words = mention.split()[1:]
    options = {"--help", "--install-completion"}
    if not words[0].startswith("-") and words[0] != "COMMAND":
        if words[0] not in COMMANDS:
            return [words[0]]
        options = {"--help", *(each for x in COMMANDS[words[0]].params for each in x.opts)}
    return [word for word in words if word.startswith("--") and word not in options]


TEXTS = [page.read_text("utf-8") for page in PAGES]
LINES = sorted({line for text in TEXTS for line in blocks(text)})
MENTIONS = sorted({mention for text in TEXTS for mention in mentions(text)})


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_is_understood(line: str) -> None:
    understand(line)


def test_what_is_mentioned_is_there() -> None:
    assert {mention: wrong for mention in MENTIONS if (wrong := unknown(mention))} == {}


def test_what_is_looked_at() -> None:
    assert len(LINES) > 9
    assert len(MENTIONS) > 30
    assert "tilewise warm -m 1 -m 16 -m 256 -n 6144 -k 4096 --dtype bfloat16 --layout NT" in LINES
    assert any(line.startswith("tilewise grade") and "--out" in line for line in LINES)


def test_what_is_not_there_is_seen() -> None:
    with pytest.raises(KeyError, match="wtach"):
        understand("tilewise wtach tiled")
    with pytest.raises(Exception, match="--sise"):
        understand("tilewise warm --sise 3")
    assert unknown("tilewise wtach tiled") == ["wtach"]
    assert unknown("tilewise watch --jif F.gif") == ["--jif"]
    assert unknown("tilewise --instal") == ["--instal"]
