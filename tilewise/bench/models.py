"""Run models by PyTorch and by tilewise: training, decoding, losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
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


def curve(training: Training, steps: int, *, in_graph: bool) -> list[float]:
    """Return the losses of training steps.

    Parameters
    ----------
    training : Training
    steps : int
        At least 1.
    in_graph : bool
        Whether the steps after the first three are replays of a CUDA graph.
    """
    losses = [training.step() for _ in range(min(steps, _UNCAPTURED) if in_graph else steps)]
    if len(losses) < steps:
        static: list[Tensor] = []

        def step() -> None:
            static[:] = [training.step()]

        replay = captured(step)  # it replays the graph once: this step
        losses.append(static[0].clone())
        while len(losses) < steps:
            replay()
            losses.append(static[0].clone())
    return [float(x) for x in losses]


_UNCAPTURED = 3


def compared(theirs: Sequence[Sequence[float]], ours: Sequence[Sequence[float]]) -> Row:
    """Return whether our curves of losses are such as other seeds give.

    Parameters
    ----------
    theirs, ours : sequence of sequence of float, seeds x steps
        The losses by PyTorch and by tilewise, above 0. At least :data:`LEAST_SEEDS` seeds. With a
        loss that is no such number, the share is 0.

    Returns
    -------
    dict
        ``steps``, and at each of these few ``torch`` and ``tilewise``, a loss for each seed.
        ``distance`` of the mean of our curves from the mean of PyTorch's; ``splits``, the distances
        of the means where the same curves are divided otherwise into two groups of equal size,
        sorted; ``share`` of all divisions, ours among them, whose distance is at least ours; and
        ``is_within``, whether the share is above :data:`LEVEL`.

    Raises
    ------
    ValueError
        If there are too few seeds: then no curve could be outside of the spread.

    Notes
    -----
    This is a permutation test. If tilewise only rounds otherwise than PyTorch, then it does not
    matter which of the curves were computed by which, and each division into two groups is as
    likely to be the one with the largest distance. A mean is that of the losses' logarithms, so
    that late, small losses count as early ones do, and a distance is the root mean square over the
    steps.

    References
    ----------
    Good, *Permutation, Parametric and Bootstrap Tests of Hypotheses*, chapter 3.
    """
    seeds, count = len(theirs), len(theirs[0])
    if seeds < LEAST_SEEDS:
        raise ValueError(f"there are curves of {seeds} seeds; the test takes {LEAST_SEEDS} or more")
    with np.errstate(all="ignore"):
        logarithms = np.log(np.array([*theirs, *ours], np.float64))
    are_numbers = bool(np.isfinite(logarithms).all())
    logarithms[~np.isfinite(logarithms)] = np.nan
    total = logarithms.sum(0)
    # Each division once: the first curve is in the first group.
    groups = [(0, *rest) for rest in combinations(range(1, 2 * seeds), seeds - 1)]
    means = np.array([2 * logarithms[list(x)].sum(0) - total for x in groups]) / seeds
    distances = np.sqrt((means**2).mean(1)).tolist()
    own, *splits = distances  # combinations begin with that of PyTorch's curves
    share = 1 - sum(x < own for x in splits) / len(distances) if are_numbers else 0.0
    few = sorted({0, count // 8, count // 4, count // 2, 3 * count // 4, count - 1})
    return {
        "steps": [i + 1 for i in few],
        TORCH: [[x[i] for i in few] for x in theirs], OURS: [[x[i] for i in few] for x in ours],
        "distance": own, "splits": sorted(splits), "share": share,
        "is_within": share > LEVEL,
    }  # fmt: skip


LEAST_SEEDS = 4
"""The least seeds of which there are enough divisions, 35, for a share below :data:`LEVEL`."""
LEVEL = 0.05


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
