"""Run models by PyTorch and by tilewise: training, decoding, losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch

from tilewise.bench.stand import Stand, medians, summary
from tilewise.bench.timing import Timings, captured

TORCH, PADDED, COMPILED = "torch", "torch, padded", "torch.compile"
COMPILED_PADDED = "torch.compile, padded"
OURS, OURS_COMPILED = "tilewise", "tilewise, compile"
CONTENDERS = (TORCH, PADDED, COMPILED, OURS, OURS_COMPILED, COMPILED_PADDED)
# A rival's time by ours, of a training step.
GOALS = {
    (TORCH, OURS): 1.4, (PADDED, OURS): 1.0, (COMPILED, OURS): 1.0, (COMPILED, OURS_COMPILED): 1.0,
    (COMPILED_PADDED, OURS_COMPILED): None,
}  # fmt: skip
DECODING_GOAL = 1.05
EAGER, CAPTURED = "eager", "captured"

Tensor = Any
Module = Any
Row = dict[str, Any]


class Training:
    """A model that is trained on one batch.

    Parameters
    ----------
    model : torch.nn.Module
    loss_of : callable
        Returns the loss of the model for the batch: it may be compiled.
    autocast : callable
        Returns the context in which the loss is computed.
    rate : float
        With 0 the weights stay.
    """

    def __init__(
        self, model: Module, loss_of: Callable[[], Tensor], autocast: Callable[[], Any], rate: float
    ) -> None:
        self.model, self._loss_of, self._autocast = model, loss_of, autocast
        parameters = list(model.parameters())
        # A step that is captured needs it, and the others get the same.
        on_gpu = parameters[0].device.type == "cuda"
        self._optimizer = torch.optim.AdamW(parameters, lr=rate, fused=True, capturable=on_gpu)

    def gradients(self) -> Tensor:
        """Compute the loss and its gradients; return the loss."""
        self.model.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self._loss_of()
        loss.backward()
        return loss.detach()

    def step(self) -> Tensor:
        """Do one step; return the loss before it."""
        loss = self.gradients()
        self._optimizer.step()
        return loss


def training_row(rival: str, ours: str) -> Row:
    """Return a row of the record, without times."""
    return {"rival": rival, "ours": ours, **_without_times()}


def ways_of(stand: Stand) -> tuple[str, ...]:
    """Return the ways to time steps: call by call, and on a GPU captured in CUDA graphs."""
    return (EAGER,) if stand.gpu is None else (EAGER, CAPTURED)


def decoding_row(batch: int) -> Row:
    """Return a row of the record, without times."""
    return {"batch": batch, "rival": TORCH, "ours": OURS, **_without_times()}


def _without_times() -> Row:
    return {"seconds": {}, "seconds_of_rounds": {}, "ratios": {}}


def time_decoding(
    stand: Stand, steps: Mapping[str, Callable[[], object]], way: str, row: Row
) -> None:
    """Time a row's two contenders in turn, in one of :func:`ways_of`; add the times to the row."""
    timed = stand.time({name: [step] for name, step in steps.items()}, in_graph=way == CAPTURED)
    _add(timed, way, row)


def time_training(
    stand: Stand, steps: Mapping[str, Callable[[], object]], way: str, row: Row
) -> None:
    """Time a training step of a row's two contenders in turn, and add the times to the row.

    Captured, each step is a graph: forward, backward and optimizer, of ours and of the rival's.
    """
    works = {name: [captured(step) if way == CAPTURED else step] for name, step in steps.items()}
    _add(stand.time(works, in_graph=False), way, row)


def _add(timed: Timings, way: str, row: Row) -> None:
    found = medians(timed)
    row["seconds"][way], row["seconds_of_rounds"][way] = found, timed.seconds
    row["ratios"][way] = found[row["rival"]] / found[row["ours"]]


def compared(theirs: Sequence[Sequence[float]], ours: Sequence[Sequence[float]]) -> Row:
    """Return the distance of two curves of losses, beside the distance of other seeds' curves.

    Parameters
    ----------
    theirs, ours : sequence of sequence of float, seeds x steps
        PyTorch's and ours; of one seed both begin at the same weights. At least two seeds.

    Returns
    -------
    dict
        ``steps``, and at each of these few ``torch`` and ``tilewise``, a loss for each seed.
        ``distances``, of each seed ours from PyTorch's, and ``spread``, of PyTorch's curves from
        one another: root mean squares over all steps. ``is_within`` says whether no distance is
        above the least of the spread.
    """
    count = len(theirs[0])
    distances = [_distance(x, y) for x, y in zip(theirs, ours, strict=True)]
    spread = [_distance(x, y) for x, y in combinations(theirs, 2)]
    few = sorted({0, count // 8, count // 4, count // 2, 3 * count // 4, count - 1})
    return {
        "steps": [i + 1 for i in few],
        TORCH: [[x[i] for i in few] for x in theirs], OURS: [[x[i] for i in few] for x in ours],
        "distances": distances, "spread": spread,
        "is_within": all(x <= y for x in distances for y in spread),
    }  # fmt: skip


def _distance(x: Sequence[float], y: Sequence[float]) -> float:
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / len(x))


def summaries(training: Sequence[Row], decoding: Sequence[Row]) -> list[Row]:
    """Return each ratio beside what it should be; of decoding the geometric mean and the worst."""
    found = []
    for way in (EAGER, CAPTURED):
        for row in training:
            rival, ours = row["rival"], row["ours"]
            if way in row["ratios"]:
                told = f"training step, {way}: time of {rival} by that of {ours}"
                goal = GOALS.get((rival, ours))
                each = summary({"training step": row["ratios"][way]}, goal=goal)
                found.append({"what": told, "way": way} | each)
    for way in (EAGER, CAPTURED):
        ratios = {
            f"batch {row['batch']}": row["ratios"][way] for row in decoding if way in row["ratios"]
        }
        if ratios:
            told = f"decoding, {way}: time of {TORCH} by that of {OURS}"
            found.append({"what": told, "way": way} | summary(ratios, goal=DECODING_GOAL))
    return found
