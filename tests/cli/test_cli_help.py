"""What a newcomer types first: the list of commands, and a kernel with no size."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest
from commands import Tilewise
from reference import is_thorough, thorough
from typer.models import OptionInfo

from tilewise.cli.main import COMMANDS, main
from tilewise.ladder.rungs import RUNGS, Rung

pytestmark = pytest.mark.usefixtures("no_machine_code")

EMPTY_SUMS = "k is 0: every element of C is an empty sum, 0"


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_list_of_commands_fits_the_terminal_and_none_is_cut(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:\n")[2]
    lines = listed.splitlines()
    assert max(map(len, lines)) <= columns
    if columns >= 80:
        assert len(lines) == len(COMMANDS)
    sentences = [(inspect.getdoc(each) or "").partition("\n\n")[0] for each in COMMANDS]
    told = [f"{each.__name__} {x}" for each, x in zip(COMMANDS, sentences, strict=True)]
    assert " ".join(listed.split()) == " ".join(" ".join(told).split())


@pytest.mark.parametrize(
    "each",
    # One thread takes seconds for its product.
    [pytest.param(x, marks=thorough) if x.name == "single_thread" else x for x in RUNGS[:3]],
    ids=lambda each: each.name,
)
@pytest.mark.parametrize("command", ["run", "profile"])
def test_every_rung_has_a_size_that_it_can_do(command: str, each: Rung, tilewise: Tilewise) -> None:
    assert tilewise(command, each.name).code == 0


@pytest.mark.parametrize("given", [["-m", 100], ["-n", 100], ["-m", 20, "-k", 5]])
def test_the_other_sizes_of_a_single_block_fit_the_one_that_is_given(
    given: list[object], tilewise: Tilewise
) -> None:
    found = tilewise("run", "single_block", *given, "--json").json
    assert found["correct"]
    for option, size in zip(given[::2], given[1::2], strict=True):
        assert found[str(option)[1:]] == size


def test_two_kernels_are_compared_at_a_size_that_both_can_do(tilewise: Tilewise) -> None:
    first, second = tilewise("profile", "tiled", "single_block", "--json").json["kernels"]
    for size in "mnk":
        assert first[size] == second[size] == 32


@pytest.mark.parametrize("size", "mnk")
def test_run_and_ladder_take_a_size_of_zero_and_say_so(
    size: str, tilewise: Tilewise, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-m", 8, "-n", 8, "-k", 8, f"-{size}", 0]
    assert tilewise("run", "tiled", *words).code == 0
    for command in ("run", "ladder"):
        main([command, "--help"])
        assert capsys.readouterr().out.count("may be 0.") == 3


@pytest.mark.parametrize("size", "mnk")
def test_a_ladder_of_nothing_says_so(
    size: str, tilewise: Tilewise, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["ladder", "-m", 8, "-n", 8, "-k", 8, f"-{size}", 0]
    # A quick run takes few rungs: each has to be compiled.
    rungs = RUNGS if is_thorough() else RUNGS[2:5]
    if not is_thorough():
        monkeypatch.setattr("tilewise.ladder.climb.rungs_of", lambda dtype: tuple(rungs))
    found = tilewise(*words)
    assert found.code == 0
    title, note, *rest = found.out.splitlines()
    assert f"{size} = 0" in title
    if size == "k":  # C is of zeros, which every rung writes
        assert note.startswith(EMPTY_SUMS)
        assert found.out.count("right") >= len(rungs)
    else:
        assert (note, rest) == ("C has no elements: nothing was launched", [])
        assert tilewise(*words, "--json").json["notes"] == [note]


@thorough
def test_a_ladder_of_empty_sums_says_so_in_json_too(tilewise: Tilewise) -> None:
    (note,) = tilewise("ladder", "-m", 8, "-n", 8, "-k", 0, "--json").json["notes"]
    assert note.startswith(EMPTY_SUMS)


@thorough
def test_a_ladder_of_something_has_no_note(tilewise: Tilewise) -> None:
    assert tilewise("ladder", "-m", 8, "-n", 8, "-k", 8, "--json").json["notes"] == []


@pytest.mark.parametrize(
    "words",
    [["profile", "tiled"], ["watch", "tiled"], ["roofline", "tiled"], ["explain"], ["tiles"]],
)
def test_what_counts_watches_or_measures_refuses_an_empty_product_and_says_why(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "-m", "8", "-n", "8", "-k", "0"]) == 2
    told = "k is 0; it must be from 1 to 2,147,483,647: an empty product has nothing to look at"
    assert told in " ".join(capsys.readouterr().err.split())
    main([words[0], "--help"])
    assert capsys.readouterr().out.count("at least 1.") == 3


def test_an_option_like_its_metavar_is_named() -> None:
    """Of an option without a name, typer 0.27 makes ``--GPU``, by its metavar."""
    checked = []
    for command in COMMANDS:
        for name, hint in get_type_hints(command, include_extras=True).items():
            for info in getattr(hint, "__metadata__", ()):
                if isinstance(info, OptionInfo) and (info.metavar or "").lower() == name:
                    # In an annotation, typer takes the first name for a default value.
                    names = [info.default, *(info.param_decls or ())]
                    assert any(str(each).startswith("-") for each in names), (command, name)
                    checked.append(name)
    assert {"gpu", "m", "arch"} <= set(checked)
