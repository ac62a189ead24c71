"""One model by PyTorch and by tilewise, side by side: forward, training step, decoding, losses.

What the examples share. The models begin with the same weights; each is checked against float64
before it is timed; and they are timed in turn, round by round.
"""

from __future__ import annotations

import argparse
import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import tilewise.torch
from tilewise.provenance import write

Tensor = Any
Module = Any
DTYPES = ("float32", "bfloat16", "float16")


class Subject(ABC):
    """A model, and what it is given.

    Attributes
    ----------
    name : str
    sizes : dict
        What it is made of, for the record.
    """

    name: str
    sizes: dict[str, int]

    @abstractmethod
    def model(self) -> Module:
        """A new one, in float32 on the host, with random weights."""

    @abstractmethod
    def batch(self, device: str, dtype: Any) -> tuple[Tensor, ...]:
        """What a training step is given: the input first."""

    @abstractmethod
    def loss(self, output: Tensor, batch: tuple[Tensor, ...]) -> Tensor:
        """Of the model's output for that batch."""

    @abstractmethod
    def decoding(self, device: str, dtype: Any) -> tuple[Any, ...]:
        """The arguments of the model for one position more, behind a cache of those before it."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that the examples share."""
    found = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    found.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    found.add_argument("--dtype", choices=DTYPES, help="bfloat16 on a GPU, float32 on a CPU")
    found.add_argument("--autocast", action="store_true", help="float32 weights, cast to --dtype")
    found.add_argument("--batch", type=int, default=4, help="sequences")
    found.add_argument("--context", type=int, default=1024, help="positions of a sequence")
    found.add_argument("--steps", type=int, default=20, help="of training, whose losses are shown")
    found.add_argument("--rounds", type=int, default=5, help="of timing")
    found.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    found.add_argument("--backend", default="inductor", help="of torch.compile")
    found.add_argument("--mode", help="of torch.compile, as reduce-overhead for CUDA graphs")
    found.add_argument("--tiny", action="store_true", help="a small model, for seconds on a CPU")
    found.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    return found


def run(subject: Subject, options: argparse.Namespace) -> None:
    """Do all of it, and print a table."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: PyTorch finds no GPU here")
    for name in ("batch", "context", "rounds", "steps"):
        if getattr(options, name) < 1:
            raise SystemExit(f"--{name} is {getattr(options, name)}; it must be at least 1")
    told = Console(stderr=True)
    dtype = options.dtype or ("bfloat16" if options.device == "cuda" else "float32")
    runner = _Runner(subject, options, getattr(torch, dtype))
    names = [name for name in runner.calls if not (options.no_compile and "compile" in name)]
    print(f"{subject.name}, {dtype}{' by autocast' if options.autocast else ''}, {options.device}")
    print(runner.replaced._summary())
    record: dict[str, Any] = {
        "subject": subject.name, "sizes": subject.sizes, "dtype": dtype,
        "autocast": options.autocast, "batch": options.batch, "context": options.context,
        "rounds": options.rounds, "left": runner.replaced.left, "fused": runner.replaced.fused,
        "error": {each: runner.error(each) for each in ("torch", "tilewise")},
    }  # fmt: skip
    record["losses"] = {name: runner.losses(name) for name in _shown(names, "losses", told)}
    for what, make in (
        ("forward", runner.forward), ("training step", runner.train), ("decoding", runner.decode),
    ):  # fmt: skip
        record[f"{what} ms"] = runner.timed(make, names, what, told)
    _print(record, names)
    if options.json:
        write(options.json, record)


def _shown(names: Iterable[str], what: str, told: Console) -> Iterable[str]:
    """The names one by one, with a bar on a terminal."""
    return track(list(names), what, console=told, transient=True, disable=not told.is_terminal)


def _print(record: dict[str, Any], names: list[str]) -> None:
    for name, error in record["error"].items():
        print(f"error against float64, {name}: {error:.2e}")
    table = Table("", *names, box=None)
    for what in ("forward ms", "training step ms", "decoding ms"):
        table.add_row(what, *(f"{record[what][name]:.3f}" for name in names))
    losses = record["losses"]
    count = len(losses[names[0]])
    for step in sorted({0, count // 2, count - 1}):
        table.add_row(f"loss, step {step + 1}", *(f"{losses[name][step]:.4f}" for name in names))
    Console(width=100, force_terminal=False).print(table)


class _Runner:
    def __init__(self, subject: Subject, options: argparse.Namespace, dtype: Any) -> None:
        torch.manual_seed(0)
        self.subject, self.options, self.dtype = subject, options, dtype
        self.weights = subject.model()
        place = options.device
        self.kept = torch.float32 if options.autocast else dtype
        theirs = copy.deepcopy(self.weights).to(place, self.kept)
        ours = copy.deepcopy(self.weights).to(place, self.kept)
        self.replaced = tilewise.torch.replace_linears(ours)
        self.models: dict[str, Module] = {
            "torch": theirs, "torch.compile": theirs, "tilewise": ours, "tilewise, compile": ours,
        }  # fmt: skip
        compiled = partial(torch.compile, backend=options.backend, mode=options.mode)
        self.calls: dict[str, Callable[..., Tensor]] = {
            name: compiled(model) if "compile" in name else model
            for name, model in self.models.items()
        }
        self.batch = subject.batch(place, self.kept)

    def _autocast(self) -> Any:
        return torch.autocast(self.options.device, self.dtype, enabled=self.options.autocast)

    def error(self, name: str) -> float:
        """The largest error of an output, over the largest output of float64."""
        exact = copy.deepcopy(self.weights).to(self.options.device, torch.float64)
        given = [x.double() if x.is_floating_point() else x for x in self.batch[:1]]
        with torch.no_grad(), self._autocast():
            found = self.models[name](self.batch[0]).double()
        with torch.no_grad():
            expected = exact(*given)
            return float((found - expected).abs().max() / expected.abs().max())

    def losses(self, name: str) -> list[float]:
        """Of training steps that all begin at the same weights; they are as before at the end."""
        model = self.models[name]
        model.load_state_dict(self.weights.state_dict())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        found = [self._step(name, optimizer).detach() for _ in range(self.options.steps)]
        model.load_state_dict(self.weights.state_dict())
        return [float(each) for each in found]

    def _step(self, name: str, optimizer: Any = None) -> Tensor:
        self.models[name].zero_grad(set_to_none=True)
        with self._autocast():
            loss = self.subject.loss(self.calls[name](self.batch[0]), self.batch)
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        return loss

    def forward(self, name: str) -> Callable[[], object]:
        def work() -> object:
            with torch.no_grad(), self._autocast():
                return self.calls[name](self.batch[0])

        return work

    def train(self, name: str) -> Callable[[], object]:
        optimizer = torch.optim.AdamW(self.models[name].parameters(), lr=0.0)
        return lambda: self._step(name, optimizer)

    def decode(self, name: str) -> Callable[[], object]:
        kept = self.dtype if self.options.autocast else self.kept
        given = self.subject.decoding(self.options.device, kept)

        def work() -> object:
            with torch.no_grad(), self._autocast():
                return self.calls[name](*given)

        return work

    def timed(
        self,
        make: Callable[[str], Callable[[], object]],
        names: list[str],
        what: str,
        told: Console,
    ) -> dict[str, float]:
        """Milliseconds a call, in the median of rounds in which the models take turns."""
        works = {name: make(name) for name in names}
        found: dict[str, list[float]] = {name: [] for name in names}
        for name in _shown([*names, *names], f"{what}, first calls", told):
            works[name]()
        rounds = [name for _ in range(self.options.rounds) for name in names]
        for name in _shown(rounds, what, told):
            self._wait()
            start = time.perf_counter()
            works[name]()
            self._wait()
            found[name].append(1e3 * (time.perf_counter() - start))
        return {name: median(each) for name, each in found.items()}

    def _wait(self) -> None:
        if self.options.device == "cuda":
            torch.cuda.synchronize()
