"""The examples and the commands of docs/pytorch.md run, tiny and on a CPU."""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reference import thorough
from scripts import script

pytestmark = pytest.mark.usefixtures("torch")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pytorch.md").read_text("utf-8")
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
]
EXAMPLES = ("gpt2.py", "llama_block.py")


def call(*words: str, folder: Path) -> str:
    """Standard output of a script of this repository, run in a folder."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(ROOT / words[0]), *words[1:]], cwd=folder, text=True,
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, tmp_path: Path) -> None:
    options = "--tiny --steps 4 --rounds 1 --backend aot_eager --json found.json"
    told = call(f"examples/{name}", *options.split(), folder=tmp_path)
    found: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())
    ways = ["torch", "torch.compile", "tilewise", "tilewise, compile"]
    for what in ("forward ms", "training step ms", "decoding ms"):
        assert list(found[what]) == ways
        assert all(value > 0 for value in found[what].values())
    losses = found["losses"]
    for way in ways:
        assert losses[way][-1] < losses[way][0]
        assert losses[way] == pytest.approx(losses["torch"], rel=1e-4)
    # Both are summed in float32; neither is exact.
    assert 0 < found["error"]["tilewise"] < 1e-5
    assert found["left"] == {}
    assert "linear layers replaced" in told
    assert found["command"].endswith(f"{name} {options}")


@pytest.mark.parametrize(("name", "fused"), [("gpt2", 2), ("llama_block", 1)])
def test_an_example_is_one_graph(
    torch: Any, tw: Any, name: str, fused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training step of it, of whose layers none is left, and whose MLPs are computed as such."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    module = importlib.import_module(name)
    if name == "gpt2":
        sizes = module.Sizes(vocabulary=57, width=24, heads=3, layers=2)
        subject = module.Gpt2Subject(sizes, 2, 8)
    else:
        sizes = module.Sizes(width=32, heads=4, kept_heads=2, inner=48)
        subject = module.LlamaSubject(sizes, 2, 8)
    model, batch = subject.model(), subject.batch("cpu", torch.float32)
    wanted = subject.loss(model(batch[0]), batch)
    found = tw.replace_linears(model)
    assert (len(found.fused), found.left) == (fused, {})
    loss_of = torch.compile(
        lambda: subject.loss(model(batch[0]), batch), fullgraph=True, backend="aot_eager"
    )
    loss = loss_of()
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    assert all(x.grad is not None for x in model.parameters() if x.requires_grad)


def ended(path: Path, *words: str) -> Any:
    """With what a script of this repository exits, which is run here as if it were the program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(path), *words])
        patch.syspath_prepend(path.parent)
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(path), run_name="__main__")
    return end.value.code


def test_what_an_example_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for options, words in (("--steps 0", "must be at least 1"), ("--device tpu", "invalid choice")):
        why = ended(ROOT / "examples" / "gpt2.py", *options.split())
        assert why not in (0, None)
        assert words in f"{why} {capsys.readouterr().err}"  # a message is the program's last word


def test_the_pages_commands_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is run by a test here, or differs from one that is by what needs a GPU."""
    found = [shlex.split(line) for line in COMMANDS]
    assert len(found) >= 6
    for python, path, *options in found:
        assert python == "python"
        assert (ROOT / path).exists()
        assert ended(ROOT / path, "--help") in (0, None)
        told = capsys.readouterr().out
        for option in options:
            assert not option.startswith("--") or option in told


@thorough
@pytest.mark.parametrize("line", [x for x in COMMANDS if "cuda" not in x and "h200" not in x])
def test_the_pages_commands_run(line: str, tmp_path: Path) -> None:
    """As they are, with the default backend of ``torch.compile``: it needs a C++ compiler."""
    _, path, *options = shlex.split(line)
    assert call(path, *options, folder=tmp_path)


def test_what_a_call_costs() -> None:
    """benchmarks/operator_cost.py: everything that it times is called, in each round."""
    found = script("operator_cost.py")
    import torch

    timed = found["works"]("cpu", torch.float32)
    costs = found["microseconds"](timed, "cpu", 2, 3)
    assert list(costs) == list(timed)
    assert all(value > 0 for value in costs.values())
    alone, whole = timed["tilewise's kernels alone"](), timed["F.linear"]()
    torch.testing.assert_close(alone, whole)
    torch.testing.assert_close(timed["tilewise.torch.linear, bias"](), timed["F.linear, bias"]())
    ours, theirs = (
        timed[f"{name} and backward"]() for name in ("tilewise.torch.linear", "F.linear")
    )
    torch.testing.assert_close(ours, theirs)
