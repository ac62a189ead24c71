"""Models by PyTorch and by tilewise: their linear layers checked, training, decoding, losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch

from tilewise.bench.products import error_share
from tilewise.bench.stand import Stand, medians, summary

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


def linear_shares(model: Module, run: Callable[[], object]) -> dict[str, float]:
    """The largest error of each product of a model's linear layers, as a share of its bound.

    Parameters
    ----------
    model : torch.nn.Module
    run : callable
        Calls the model, and computes its gradients if those should be checked too.

    Returns
    -------
    dict of str to float
        By the layer's name, with ``gradient of x`` and ``gradient of weight`` behind it; each at
        most 1 where it is right, as :func:`tilewise.bench.products.error_share` has it.

    Notes
    -----
    Each product is held against float64 for the inputs that it was really given. A bias is one more
    term of the sum. The gradient of a weight that other modules use as well is left out: it is a
    sum of theirs.
    """
    layers = {name: x for name, x in model.named_modules() if isinstance(x, torch.nn.Linear)}
    users = [
        id(x) for module in model.modules() for x in module.parameters(recurse=False)
    ]  # of a tied weight, several
    found: dict[str, float] = {}
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    inputs: dict[str, Tensor] = {}

    def forward(name: str, layer: Module, given: Tensor, output: Tensor) -> None:
        x, w = _rows(given), layer.weight.detach().to(output.dtype)
        inputs[name], terms, factors = x, x.to(output.dtype), w.T
        if layer.bias is not None:
            bias = layer.bias.detach().to(output.dtype)[None]
            terms = torch.cat((terms, torch.ones_like(terms[:, :1])), 1)
            factors = torch.cat((factors, bias))
        found[name] = error_share(terms, factors, _rows(output))

    def backward(name: str, layer: Module, of_x: Tensor | None, of_y: Tensor) -> None:
        y = _rows(of_y)
        if of_x is not None:
            w = layer.weight.detach().to(y.dtype)
            found[f"{name}, gradient of x"] = error_share(y, w, _rows(of_x))
        seen[name] = inputs[name].to(y.dtype), y

    hooks = []
    for name, layer in layers.items():
        hooks.append(
            layer.register_forward_hook(
                lambda layer, given, output, name=name: forward(name, layer, given[0], output)
            )
        )
        hooks.append(
            layer.register_full_backward_hook(
                lambda layer, of_x, of_y, name=name: backward(name, layer, of_x[0], of_y[0])
            )
        )
    model.zero_grad(set_to_none=True)
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    for name, (x, y) in seen.items():
        weight = layers[name].weight
        if users.count(id(weight)) == 1:
            share = error_share(y.T, x, weight.grad.to(y.dtype))
            found[f"{name}, gradient of weight"] = share
    model.zero_grad(set_to_none=True)
    return found


def _rows(x: Tensor) -> Tensor:
    return x.detach().flatten(0, -2)


def worst_share(shares: Mapping[str, float]) -> Row:
    """The largest share of all, for a record: ``products``, ``error_share``, ``at``, ``wrong``."""
    at = max(shares, key=shares.__getitem__)
    value = shares[at]
    return {
        "products": len(shares), "error_share": value if math.isfinite(value) else None, "at": at,
        "wrong": [name for name, share in shares.items() if not share <= 1],
    }  # fmt: skip


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
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)

    def gradients(self) -> Tensor:
        """Compute the loss and its gradients; return the loss."""
        self.model.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self._loss_of()
        loss.backward()
        return loss.detach()

    def step(self) -> Tensor:
        """One step; return the loss before it."""
        loss = self.gradients()
        self._optimizer.step()
        return loss


def training_row(stand: Stand, steps: Mapping[str, Callable[[], object]]) -> Row:
    """Time training steps in turn.

    Returns
    -------
    dict
        A row of the record, with each rival's time by ours.
    """
    timed = stand.time({name: [step] for name, step in steps.items()}, in_graph=False)
    found = medians(timed)
    ratios = {
        f"{rival} by {ours}": found[rival] / found[ours]
        for rival, ours in GOALS
        if rival in found and ours in found
    }
    return {"seconds": found, "seconds_of_rounds": timed.seconds, "ratios": ratios}


def ways_of(stand: Stand) -> tuple[str, ...]:
    """How decoding is timed: call by call, and where there is a GPU captured in CUDA graphs."""
    return (EAGER,) if stand.gpu is None else (EAGER, CAPTURED)


def decoding_row(batch: int) -> Row:
    """A row of the record, without times."""
    return {"batch": batch, "seconds": {}, "seconds_of_rounds": {}, "ratios": {}}


def time_decoding(
    stand: Stand, steps: Mapping[str, Callable[[], object]], way: str, row: Row
) -> None:
    """Time one step of decoding in turn, one of :func:`ways_of`; add the times to a row."""
    timed = stand.time({name: [step] for name, step in steps.items()}, in_graph=way == CAPTURED)
    found = medians(timed)
    row["seconds"][way], row["seconds_of_rounds"][way] = found, timed.seconds
    row["ratios"][way] = found[TORCH] / found[OURS]


def compared(theirs: Sequence[Sequence[float]], ours: Sequence[Sequence[float]]) -> Row:
    """How far apart two curves of losses are, beside how far curves of other seeds are.

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


def summaries(training: Row | None, decoding: Sequence[Row]) -> list[Row]:
    """Return each ratio beside what it should be; of decoding the geometric mean and the worst."""
    found = []
    for (rival, ours), goal in GOALS.items():
        ratio = (training or {}).get("ratios", {}).get(f"{rival} by {ours}")
        if ratio is not None:
            told = {"what": f"training step: time of {rival} by that of {ours}"}
            found.append(told | summary({"training step": ratio}, goal=goal))
    for way in (EAGER, CAPTURED):
        ratios = {
            f"batch {row['batch']}": row["ratios"][way] for row in decoding if way in row["ratios"]
        }
        if ratios:
            told = {"what": f"decoding, {way}: time of {TORCH} by that of {OURS}", "way": way}
            found.append(told | summary(ratios, goal=DECODING_GOAL))
    return found
