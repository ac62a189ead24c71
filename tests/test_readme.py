"""The commands and programs of the README and of some pages must print what they show.

``python tests/test_readme.py`` writes these outputs anew. A block of CUDA C++ that begins with
``// FILE.cu`` is that file for the commands behind it.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import io
import json
import math
import os
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from reference import thorough
from scripts import script

import tilewise
from tilewise.cli.main import main
from tilewise.compiler import nvrtc
from tilewise.devices import get_device

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
SHOWN = (
    "epilogues", "exercises", "first-kernel", "grouped", "index", "kernels", "ladder", "launching",
    "matmul", "notebooks", "planning", "profiling", "teaching",
)  # fmt: skip
# The ladder's page runs each rung several times, and the others compile, watch, profile and grade.
LONG = ("first-kernel", "kernels", "ladder", "profiling", "teaching")
PAGES = (README, *(ROOT / "docs" / f"{name}.md" for name in SHOWN))
AGREEMENT = script("agreement.py")
PROJECTS = script("projects_page.py")
API = script("api_page.py")
HOST = script("host_page.py")
MMA = script("mma_page.py")

# A python block's output is the text block that follows it.
BLOCK = re.compile(
    r"```(?P<kind>console|python|cuda)\n(?P<body>.*?)```\n(?:\n```text\n(?P<output>.*?)```\n)?",
    re.DOTALL,
)


def refreshed(text: str) -> str:
    """``text`` with every output as it is here, run in order in the current folder."""
    names: dict[str, Any] = {"__name__": "readme"}  # a program goes on where the last one ended
    return BLOCK.sub(lambda found: _run(found["kind"], found["body"], found["output"], names), text)


def programs(text: str) -> str:
    """The Python of a page, one program after the other."""
    return "\n".join(found["body"] for found in BLOCK.finditer(text) if found["kind"] == "python")


def _run(kind: str, body: str, output: str | None, names: dict[str, Any]) -> str:
    if kind == "console":
        commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
        shown = "".join(f"$ {command}\n{_printed_by(command)}" for command in commands)
        return f"```console\n{shown}```\n"
    if kind == "cuda":
        if named := re.match(r"// (\w+\.cu)\n", body):
            Path(named[1]).write_text(body)
        return f"```cuda\n{body}```\n"
    program = f"```python\n{body}```\n"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(body, "README.md", "exec"), names)
    if output is None:
        assert printed.getvalue() == "", "a program prints, and the README does not show what"
        return program
    return f"{program}\n```text\n{_trimmed(printed.getvalue())}```\n"


def _printed_by(command: str) -> str:
    """Standard output, and after it standard error, of a ``tilewise`` command."""
    words = shlex.split(command, comments=True)
    assert words[0] == "tilewise", command
    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        contextlib.redirect_stderr(io.StringIO()) as told,
    ):
        main(words[1:])
    return _trimmed(printed.getvalue() + told.getvalue())


def _trimmed(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


# What is said of the registers on a page: they differ from one NVRTC to the next.
COMPILER = re.compile(r"NVRTC (\d+\.\d+)'s")


def compiler_of(text: str) -> str | None:
    """The version of NVRTC whose registers a page shows; None where it shows none."""
    found = COMPILER.findall(text)
    assert len(found) <= 1
    return str(found[0]) if found else None


def compiler_here() -> str:
    return ".".join(map(str, nvrtc.version()))


def comparable(text: str, *, with_registers: bool = False) -> list[str]:
    """The lines, without what differs from machine to machine: times, and the registers where they
    are of another NVRTC than the one here."""
    text = re.sub(r"\d[\d.,]* (s|ms|µs) of emulation", "TIME of emulation", text)
    text = re.sub(r"(every block was run|multiplied), in \d[\d.,]* (s|ms|µs)", r"\1 in TIME", text)
    if with_registers:
        return [re.sub(r" +", " ", line) for line in text.splitlines()]
    text = re.sub(r"\d+ registers a thread", "REGISTERS registers a thread", text)
    text = re.sub(r"registers a thread +\d+( +\d+)?", "registers a thread REGISTERS", text)
    text = re.sub(r"(?m)^(sm_\d+) +\d+ ", r"\1 REGISTERS ", text)
    text = re.sub(r"(?m)^(\d+ \w+ +right .*\D)\d+( +[\d,]+)$", r"\1REGISTERS\2", text)
    return [re.sub(r" +", " ", line) for line in text.splitlines()]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name, marks=[thorough] * (page.stem in LONG)) for page in PAGES],
)
def test_pages_show_what_is_printed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page != README and get_device("auto").name == "gpu":
        pytest.skip("it shows what is printed without a GPU; with one, kernels are timed too")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    text = page.read_text()
    assert BLOCK.search(text)
    is_same = compiler_of(text) in (None, compiler_here())
    old, new = (comparable(each, with_registers=is_same) for each in (text, refreshed(text)))
    assert old == new, "\n" + "\n".join(difflib.unified_diff(old, new, page.name, "here", n=1))


def test_what_agrees_is_as_measured() -> None:
    record = json.loads(AGREEMENT["RECORD"].read_text())
    text = AGREEMENT["PAGE"].read_text()
    assert AGREEMENT["page"](text, record) == text


def test_the_page_of_projects_is_what_was_run() -> None:
    """docs/projects.md is drawn from the record."""
    record, hardware = (json.loads(PROJECTS[x].read_text()) for x in ("RECORD", "HARDWARE"))
    text = PROJECTS["PAGE"].read_text("utf-8")
    assert text == PROJECTS["page"](record, hardware)
    assert "(docs/projects.md)" in README.read_text()
    assert not re.search(r"[ `]/\w", text), "a path of the machine where it was run"
    assert record["right"] == sum(row["right"] for row in record["rows"])


def test_the_page_of_the_hosts_arrays_is_of_the_records() -> None:
    records = [json.loads(path.read_text()) for path in HOST["RECORDS"]]
    text = HOST["PAGE"].read_text("utf-8")
    assert text == HOST["page"](*records)
    assert "(docs/host.md)" in README.read_text()
    measured = [*records[0]["squares"], *records[0]["batches"], *records[1]["larger"]]
    assert all(each["correct"] for each in measured)
    assert all(each["memory"] <= each["budget"] for each in records[1]["larger"])


def test_the_page_of_products_by_mma_is_of_the_records() -> None:
    records = [json.loads(path.read_text()) for path in MMA["RECORDS"]]
    text = MMA["PAGE"].read_text("utf-8")
    assert text == MMA["page"](*records)
    for page in (README, ROOT / "docs" / "matmul.md"):
        assert re.search(r"\((docs/)?performance-mma\.md\)", page.read_text())
    assert not any(row["wrong"] for record in records for row in record["rows"])
    suites, drawn, aligned = records
    assert all(row["is_aligned"] for record in (suites, aligned) for row in record["rows"])
    assert not any(row["is_aligned"] for row in drawn["rows"])
    for row in suites["rows"]:  # a loss is told as one
        least = min(row["ratios"].get(rival, math.inf) for rival in ("triton", "cutlass"))
        told = f"| {row['name']} {row['layout']} | {least:.3f} |"
        assert (told in text) == (least < 1)
    wrong = {**records[0], "rows": [{**records[0]["rows"][0], "wrong": ["cutlass"]}]}
    with pytest.raises(ValueError, match="a result was wrong"):
        MMA["page"](wrong, *records[1:])


def test_the_page_of_projects_says_why_counts_are_not_the_gpus() -> None:
    record, hardware = (json.loads(PROJECTS[x].read_text()) for x in ("RECORD", "HARDWARE"))
    counted = {**hardware["rows"][0], "equal": False, "differs": {"shared_load_requests": [3, 2]}}
    row = {**record["rows"][0], "counted_as": "PTX", "counted_why": ["line 4 is so"]}

    def page(row: dict[str, Any], *rows: dict[str, Any]) -> str:
        return str(PROJECTS["page"]({**record, "rows": [row]}, {**hardware, "rows": rows}))

    text = page(row, counted)
    assert "| 0 | PTX | differs |" in text
    said = "Line 4 is so. The GPU's counts of shared load requests differ."
    assert f"`{row['kernel']}`: {said}" in text
    assert "1 of them were counted" in text
    equal = page({**row, "counted_why": []}, {**counted, "equal": True})
    assert "| 0 | PTX | equal |" in equal
    assert "The GPU's counts" not in equal
    assert "| 0 | PTX |  |" in page(row)
    of_printf = {"project": "cuda-samples", "kernel": "testKernel", "counted_why": []}
    text = page({**row, **of_printf}, {**counted, **of_printf, "because": ""})
    assert "What `printf` itself does to memory is not counted on the emulator." in text


def test_the_page_of_the_api_is_what_the_docstrings_say() -> None:
    """docs/api.md is drawn from them, and has every public name once."""
    text, modules = API["PAGE"].read_text("utf-8"), API["MODULES"]
    if importlib.util.find_spec("torch") is None:
        text = re.sub(
            r"## tilewise\.torch\n.*?(?=^## |^`tilewise\.__version__)",
            "",
            text,
            flags=re.DOTALL | re.MULTILINE,
        )
        modules = [name for name in modules if name != "torch"]
    assert text == API["page"](modules), "python benchmarks/api_page.py writes it anew"
    assert "(docs/api.md)" in README.read_text()
    grouped = [name for names in API["GROUPS"].values() for name in names]
    assert sorted([*grouped, "__version__"]) == sorted(tilewise.__all__)
    names = [f"tilewise.{name}" for name in grouped]
    for module in modules:
        names += [f"tilewise.{module}.{x}" for x in getattr(tilewise, module).__all__]
    assert [name for name in names if text.count(f"### `{name}`\n") != 1] == []
    # Neither marks of docstrings nor addresses of objects are left.
    assert re.findall(r":\w+:`|``|\bat 0x|SKIP", text.replace("```", "")) == []


def test_a_docstring_without_its_parts_is_seen() -> None:
    """What the page takes out of a docstring."""

    def example(*, size: int = 3, **more: int) -> float:
        """Do one thing, with :func:`tilewise.matmul`. And more.

        Not of the first paragraph.

        Parameters
        ----------
        size : int
            Of ``x``, in
            two lines.

        Raises
        ------
        ValueError
            If not.
        """
        return size + more["more"]

    entry = API["_entry"]("example", example)
    assert "Do one thing, with `tilewise.matmul`. And more.\n" in entry
    assert "Not of" not in entry
    assert "- `size` : int. Of `x`, in two lines.\n" in entry
    assert "- `ValueError`. If not.\n" in entry
    assert "example(*, size: int = 3, **more: int) -> float\n" in entry


def test_its_targets_and_files_are_there() -> None:
    text = README.read_text()
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", text, re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for page in PAGES:
        for path in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / path).exists(), path


@pytest.mark.parametrize(
    ("shown", "here", "same"),
    [
        ("time  1.5 s of emulation", "time  20 ms of emulation", True),
        ("40 registers a thread", "38 registers a thread", True),
        ("5 tiled  right  16  5  0  40  8,192", "5 tiled  right  16  5  0  38  8,192", True),
        ("10 vectorized  right  6  5  0  107  8", "10 vectorized  right  6  5  0  128  8", True),
        ("5 tiled  right  16  5  0  40  8,192", "5 tiled  right  16  5  1  40  8,192", False),
        ("5 tiled  right  16  5  0  40  8,192", "5 tiled  WRONG  16  5  0  40  8,192", False),
        ("global loads  1,024", "global loads  1,025", False),
    ],
)
def test_only_times_and_registers_may_differ(shown: str, here: str, same: bool) -> None:
    assert (comparable(shown) == comparable(here)) == same


def test_with_the_same_compiler_registers_may_not_differ() -> None:
    shown, here = ("5 tiled  right  16  5  0  40  8,192", "5 tiled  right  16  5  0  38  8,192")
    assert comparable(shown, with_registers=True) != comparable(here, with_registers=True)


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, {"COLUMNS": "80"}),
    ):
        for page in PAGES:
            of_here = COMPILER.sub(f"NVRTC {compiler_here()}'s", page.read_text())
            page.write_text(refreshed(of_here))
