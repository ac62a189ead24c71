"""Time training and decoding of the models of examples/ by PyTorch and tilewise; compare losses.

    python benchmarks/models.py [--stages training decoding losses] [--limit 150] [--json FILE]
    python benchmarks/models.py --limit 150 --json FILE --resume
    python benchmarks/models.py --tiny

- training: a step (forward, backward, AdamW) of GPT-2 small, whose 50,257 words are not padded, by
  PyTorch, by ``torch.compile``, by tilewise, by tilewise under ``torch.compile``, and by PyTorch
  with the vocabulary padded by hand to 50,304. The loss is part of what is compiled. tilewise and a
  rival are timed in turn, called step by step (eager) and captured in CUDA graphs.
- decoding: one more position after 1,024, by a block of a Llama-like model, for several batches;
  called one by one (eager), in which the host may be the limit, and captured in CUDA graphs.
- losses: the losses of training steps on one batch, by PyTorch and by tilewise, for several seeds:
  a permutation test of whether the two are further apart than chance divisions of these curves.

Before anything is timed, the product of each linear layer and both of its gradients are checked
against float64 with the inputs that the model gives it, and then the products of its MLPs with
their activations and derivatives. The record is written after each part: a pair of contenders, a
batch, a seed. With --resume, the parts in the file of --json are not measured again; each row names
the GPU that it was measured on. The exit code is 1 if a result of tilewise is wrong or something
failed.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from command_line import parser_of
from product_runs import ProductRun, Row, add_run_options, checked, say

import tilewise.torch
from tilewise.bench import model_checks, models
from tilewise.bench.models import COMPILED_PADDED, CONTENDERS, GOALS, OURS, TORCH, Training
from tilewise.bench.stand import Stand, stand
from tilewise.precision import HALVES

sys.path.append(str(Path(__file__).parents[1] / "examples"))

import gpt2
import llama_block

STAGES = ("training", "decoding", "losses")
PADDED_TO = 64  # of whose multiple a vocabulary is, padded by hand
RATE = 3e-4

Module = Any


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    found = parser_of(__doc__)
    found.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    found.add_argument(
        "--contenders", nargs="+", choices=CONTENDERS, metavar="NAME",
        default=[x for x in CONTENDERS if x != COMPILED_PADDED], help="of the training step",
    )  # fmt: skip
    found.add_argument("--dtype", choices=(*HALVES, "float32"), default="bfloat16")
    found.add_argument("--autocast", action="store_true", help="float32 weights, cast to --dtype")
    found.add_argument("--batch", type=int, default=4, help="sequences of a training step")
    found.add_argument("--context", type=int, default=1024, help="positions of a sequence")
    found.add_argument("--batches", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64],
                       help="of decoding")  # fmt: skip
    found.add_argument("--seeds", type=int, default=models.LEAST_SEEDS,
                       help="of the losses, at least as many as by default")  # fmt: skip
    found.add_argument("--steps", type=int, default=200, help="of the losses")
    found.add_argument("--losses-context", type=int, default=256, metavar="N")
    found.add_argument("--backend", default="inductor", help="of torch.compile")
    found.add_argument(
        "--resume", action="store_true", help="continue the record in the file of --json"
    )
    add_run_options(found, rounds=5, seconds=0.1)
    options = checked(found, arguments)
    for name in ("batch", "context", "steps", "losses_context"):
        if getattr(options, name) < 1:
            found.error(f"--{name.replace('_', '-')} must be at least 1")
    least = models.LEAST_SEEDS
    if options.seeds < least or min(options.batches) < 1:
        found.error(f"--seeds must be at least {least}, and --batches at least 1 each")
    if TORCH not in options.contenders or OURS not in options.contenders:
        found.error(f"--contenders takes {TORCH} and {OURS} in any case")
    if options.resume and not options.json:
        found.error("--resume takes --json, the file to go on with")
    if options.tiny:
        options.batch, options.context, options.losses_context = 2, 16, 16
    return options


class Run(ProductRun):
    """The stages that are measured, and those that an earlier run has in its record."""

    def __init__(self, options: argparse.Namespace, at: Stand) -> None:
        super().__init__(options, at)
        self.dtype = getattr(torch, options.dtype)
        self.kept = torch.float32 if options.autocast else self.dtype
        self.training: list[Row] = []
        self.decoding: list[Row] = []
        self.curves: dict[str, dict[str, list[float]]] = {}
        self.checks: dict[str, Row] = {}
        self.right: dict[str, bool] = {}
        self.earlier_commands: list[str] = []
        self.blocks: dict[str, Module] = {}
        self.models: dict[str, Module] = {}
        self.steps: dict[str, Callable[[], object]] = {}
        self.sizes = gpt2.Sizes()
        self.block = llama_block.Sizes()
        if options.tiny:
            self.sizes = gpt2.Sizes(vocabulary=257, width=48, heads=3, layers=2)
            self.block = llama_block.Sizes(width=64, heads=4, kept_heads=2, inner=96)
        if options.resume and options.json.exists():
            self._resume(json.loads(options.json.read_text()))

    def _resume(self, record: Row) -> None:
        """Take the parts of an earlier run's record; its options must be the same."""
        for key, value in self.asked().items():
            if record.get(key) != value:
                raise SystemExit(
                    f"--resume: {self.options.json} has {key} {record.get(key)}, and not {value}"
                )
        ways = set(models.ways_of(self.at))
        self.training, self.decoding = (
            [row for row in record[name] if ways <= set(row["ratios"])]
            for name in ("training", "decoding")
        )
        self.curves, self.checks = record["curves"], record["checks"]
        self.earlier_commands = [
            *record.get("earlier_commands", ()),
            f"{record['date'][:10]}: {record['command']}",
        ]

    def all(self) -> None:
        """Measure the stages that the options name, except for the parts that are known already."""
        parts: list[tuple[str, Callable[[], None]]] = []
        options = self.options
        if "training" in options.stages:
            known = {(row["rival"], row["ours"]) for row in self.training}
            parts += [
                (f"training, {rival} by {ours}", partial(self.train, rival, ours))
                for rival, ours in GOALS
                if {rival, ours} <= set(options.contenders) and (rival, ours) not in known
            ]
        if "decoding" in options.stages:
            known_batches = {row["batch"] for row in self.decoding}
            parts += [
                (f"decoding, batch {batch}", partial(self.decode, batch))
                for batch in options.batches
                if batch not in known_batches
            ]
        if "losses" in options.stages:
            parts += [
                (f"losses, seed {seed}", partial(self.lose, seed))
                for seed in range(options.seeds)
                if str(seed) not in self.curves
            ]
        for name, part in self.budget.take(parts):
            with self.part(name):
                part()
            self.keep()
            if self.at.gpu is not None:
                gc.collect()
                torch.cuda.empty_cache()

    def autocast(self) -> Any:
        """Return the context in which models are called."""
        return torch.autocast(self.at.device, self.dtype, enabled=self.options.autocast)

    def train(self, rival: str, ours: str) -> None:
        """Time a training step of GPT-2 by two contenders."""
        for name in (rival, ours):
            if name not in self.steps:
                step = self._step(name)
                if step is None:
                    return
                for _ in range(3):  # the first ones compile
                    step()
                self.steps[name] = step
                say(f"{name}: ready")
        row = models.training_row(rival, ours) | {"gpu": self._gpu()}
        self.training.append(row)
        steps = {name: self.steps[name] for name in (rival, ours)}
        for way in models.ways_of(self.at):
            with self.part(f"training, {rival} by {ours}, {way}"):
                models.time_training(self.at, steps, way, row)
                say(f"training step, {way}: {_milliseconds(row['seconds'][way])}")
            self.keep()

    def _step(self, name: str) -> Callable[[], object] | None:
        """Return a contender's step; None if a product of tilewise is wrong."""
        subject, batch, weights = self._gpt2(self.options.context, 0)
        kind = TORCH if "tilewise" not in name else OURS
        kind += ", padded" * ("padded" in name)
        if kind not in self.models:
            self.models[kind] = self._placed(
                self._padded() if "padded" in kind else weights, ours=kind == OURS
            )
        model = self.models[kind]
        loss_of = partial(_loss, model, subject, batch)
        if kind == OURS and not self._is_right("GPT-2", model, loss_of):
            return None
        if "compile" in name:
            loss_of = torch.compile(loss_of, backend=self.options.backend, dynamic=False)
        return Training(model, loss_of, self.autocast, 0.0).step

    def _gpu(self) -> str:
        return "" if self.at.gpu is None else str(torch.cuda.get_device_name())

    def _is_right(self, name: str, model: Module, loss_of: Callable[[], Any]) -> bool:
        """Return whether the products of the model are right; it is checked once in a run."""
        if name not in self.right:
            training = Training(model, loss_of, self.autocast, 0.0)
            self.right[name] = self._checked(name, model, training.gradients)
        return self.right[name]

    def _checked(self, name: str, model: Module, run: Callable[[], object]) -> bool:
        """Check a model's products, of each layer and MLP; return whether all are right."""
        shares = model_checks.linear_shares(model, run) | model_checks.fused_shares(run)
        self.checks[name] = found = model_checks.worst_share(shares)
        say(f"{name}: {found['products']} products, largest error {found['error_share']} of the "
            f"bound, {found['at']}{'; WRONG' if found['wrong'] else ''}")  # fmt: skip
        return not found["wrong"]

    def decode(self, batch: int) -> None:
        """Time one more position of the Llama-like block, for a number of sequences."""
        context = self.options.context
        subject = llama_block.LlamaSubject(self.block, batch, context)
        torch.manual_seed(0)
        if not self.blocks:
            weights = self._made(subject)
            self.blocks = {x: self._placed(weights, ours=x == OURS) for x in (TORCH, OURS)}
        given = subject.decoding(self.at.device, self.dtype)
        steps: dict[str, Callable[[], object]] = {}
        for name, model in self.blocks.items():
            step = partial(self._called, model, given)
            if name == OURS and not self._checked(f"decoding, batch {batch}", model, step):
                return
            for _ in range(3):
                step()
            steps[name] = step
        self.decoding.append(row := models.decoding_row(batch) | {"gpu": self._gpu()})
        for way in models.ways_of(self.at):
            with self.part(f"decoding, batch {batch}, {way}"):
                models.time_decoding(self.at, steps, way, row)
                say(f"batch {batch}, {way}: {_milliseconds(row['seconds'][way])}")
            self.keep()

    def _called(self, model: Module, given: tuple[Any, ...]) -> Any:
        with torch.no_grad(), self.autocast():
            return model(*given)

    def lose(self, seed: int) -> None:
        """Train both models for a seed, and note their losses."""
        subject, batch, weights = self._gpt2(self.options.losses_context, seed)
        found: dict[str, list[float]] = {}
        for name in (TORCH, OURS):
            model = self._placed(weights, ours=name == OURS)
            loss_of = partial(_loss, model, subject, batch)
            training = Training(model, loss_of, self.autocast, RATE)
            in_graph = self.at.gpu is not None
            found[name] = models.curve(training, self.options.steps, in_graph=in_graph)
            say(f"seed {seed}, {name}: losses {found[name][0]:.4f} to {found[name][-1]:.4f}")
        self.curves[str(seed)] = found

    def losses(self) -> Row | None:
        """Return the comparison of the loss curves; None before there are enough seeds."""
        if len(self.curves) < models.LEAST_SEEDS:
            return None
        theirs, ours = ([x[name] for x in self.curves.values()] for name in (TORCH, OURS))
        return models.compared(theirs, ours) | {"seeds": list(self.curves)}

    def _gpt2(self, context: int, seed: int) -> tuple[Any, Any, Module]:
        torch.manual_seed(seed)
        subject = gpt2.Gpt2Subject(self.sizes, self.options.batch, context)
        return subject, subject.batch(self.at.device, self.kept), self._made(subject)

    def _padded(self) -> Module:
        count = -(-self.sizes.vocabulary // PADDED_TO) * PADDED_TO
        sizes = replace(self.sizes, vocabulary=count)
        torch.manual_seed(0)
        return self._made(gpt2.Gpt2Subject(sizes, self.options.batch, self.options.context))

    def _made(self, subject: Any) -> Module:
        """Return a subject's model with random weights, on the device on which it is used."""
        with torch.device(self.at.device):
            return subject.model()

    def _placed(self, weights: Module, *, ours: bool) -> Module:
        model = copy.deepcopy(weights).to(self.at.device, self.kept)
        if ours:
            left = tilewise.torch.replace_linears(model).left
            assert not left, left
        return model

    def asked(self) -> Row:
        """Return the options and sizes that decide what is measured."""
        options = self.options
        return {
            "dtype": options.dtype, "autocast": options.autocast, "backend": options.backend,
            "batch": options.batch, "context": options.context, "tiny": options.tiny,
            "sizes": vars(self.sizes), "block": vars(self.block), "steps": options.steps,
            "losses_context": options.losses_context, "rate": RATE,
        }  # fmt: skip

    def record(self) -> Row:
        """Return what was measured until now, without its provenance."""
        return self.asked() | {
            "method": self.at.method, "not_measured": self.budget.left, "failures": self.failures,
            "checks": self.checks, "summaries": models.summaries(self.training, self.decoding),
            "training": self.training, "decoding": self.decoding, "losses": self.losses(),
            "curves": self.curves, "earlier_commands": self.earlier_commands,
        }  # fmt: skip


def _loss(model: Module, subject: Any, batch: Any) -> Any:
    return subject.loss(model(batch[0]), batch)


def _milliseconds(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {1e3 * x:.3f} ms" for name, x in seconds.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the summaries and write the record."""
    options = parsed(arguments)
    with stand(options.rounds, options.seconds, on_cpu=options.tiny) as at:
        run = Run(options, at)
        run.all()
        run.keep()
    run.print_summaries()
    found = run.losses()
    if found:
        print(
            f"losses: the means are {found['distance']:.4f} apart, at least as far as in "
            f"{found['share']:.3f} of all divisions into two groups (above {models.LEVEL:g}); "
            f"{'met' if found['is_within'] else 'MISSED'}"
        )
    sys.exit(bool(run.failures) or any(check["wrong"] for check in run.checks.values()))


if __name__ == "__main__":
    main()
