"""MLPs of a model that replace_linears has computed as one, and those that it leaves."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref
from typing import Any

import pytest

pytest.importorskip("torch", reason="the models are PyTorch's")

import mlp_models as models


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What epilogues the products of calls have; None of plain ones."""
    from tilewise.arrays import dispatched

    (own,) = dispatched._answers
    seen: list[Any] = []

    def looked_at(*args: Any, **options: Any) -> Any:
        asked = options.get("asked", args[11] if len(args) > 11 else None)
        seen.append(None if asked is None else str(asked.function))
        return own(*args, **options)

    monkeypatch.setattr(dispatched, "_answers", [looked_at])
    return seen


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Up", "other(gelu_tanh(one))"),
        ("Gated", "down_proj(silu(gate_proj) * up_proj)"),
        ("Reversed", "down_proj(relu(gate_proj) * up_proj)"),
        ("Inherited", "down_proj(silu(gate_proj) * up_proj)"),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_what_is_one_mlp(
    torch: Any, tw: Any, name: str, words: str, bias: bool, backend: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Forward and backward it is what it was; its class still is, to isinstance and pickle."""
    kind = getattr(models, name)
    theirs = kind(bias).double()
    ours = copy.deepcopy(theirs)
    found = tw.replace_linears(ours)
    assert found.fused == {"": words}
    assert f"the model itself  fused: {words}" in str(found)
    assert isinstance(ours, kind)
    x = torch.randn(3, 8).double().requires_grad_()
    wanted = theirs(x)
    of_theirs = torch.autograd.grad(wanted.square().sum(), [x, *theirs.parameters()])
    for model in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        call = torch.compile(model, fullgraph=True, backend=backend) if backend else model
        seen = counted(monkeypatch)
        y = call(x)
        assert len(seen) == 2
        torch.testing.assert_close(y, wanted)
        grads = torch.autograd.grad(y.square().sum(), [x, *model.parameters()])
        assert len(seen) == 2 + (6 if "Proj" in words or "gate" in words else 4)
        for mine, other in zip(grads, of_theirs, strict=True):
            torch.testing.assert_close(mine, other)
    assert tw.replace_linears(ours).fused == {}


@pytest.mark.parametrize(
    "name",
    ["Scaled", "OfTwo", "Branching", "Twice", "OfAnother", "Unknown", "Shadowed", "OwnFunction"],
)
def test_what_is_not_sure_is_left(torch: Any, tw: Any, name: str) -> None:
    kind = getattr(models, name)
    model = kind()
    before = model(torch.ones(2, 8))
    found = tw.replace_linears(model)
    assert found.fused == {}
    assert type(model) is kind
    torch.testing.assert_close(model(torch.ones(2, 8)), before)


@pytest.mark.parametrize("name", ["Unhashable", "OwnAttributes", "Rebound", "Chained"])
def test_what_looks_like_one(torch: Any, tw: Any, name: str) -> None:
    assert tw.replace_linears(getattr(models, name)()).fused == {}


def test_source_that_is_not_the_code_is_not_believed(torch: Any, tw: Any) -> None:
    """A function of another file's line numbers, or one that was made by exec."""
    kind: Any = type("Made", (models.Up,), {})
    space: dict[str, Any] = {"F": torch.nn.functional}
    exec("def forward(self, x):\n    return self.one(x)\n", space)
    made = space["forward"]
    code = made.__code__.replace(
        co_filename=models.Up.forward.__code__.co_filename,
        co_firstlineno=models.Up.forward.__code__.co_firstlineno,
    )
    kind.forward = type(made)(code, models.Up.forward.__globals__)
    assert tw.replace_linears(kind()).fused == {}
    kind.forward = made
    assert tw.replace_linears(kind()).fused == {}


def test_sequences(torch: Any, tw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nn = torch.nn
    model = nn.Sequential(
        nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8),
        nn.Tanh(), nn.Linear(8, 8), nn.Softmax(-1),
    ).double()  # fmt: skip
    x = torch.randn(3, 8).double()
    wanted = model(x)
    keys = list(model.state_dict())
    found = tw.replace_linears(model)
    assert found.fused == {"": "3(gelu(1)), 7(tanh(5))"}
    assert str(found).startswith("4 of 4 linear layers replaced, 1 MLP fused\n")
    assert list(model.state_dict()) == keys
    seen = counted(monkeypatch)
    torch.testing.assert_close(model(x), wanted)
    assert len(seen) == 4
    assert [x for x in seen if x is not None and "tanh" in x]
    assert type(model) is tw.Sequential
    dropped = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 8))
    assert tw.replace_linears(dropped).fused == {}
    assert type(dropped) is nn.Sequential
    within = models.InBlock()
    assert tw.replace_linears(within).fused == {"mlp": "down_proj(silu(gate_proj) * up_proj)"}
    chosen = models.InBlock()
    told = tw.replace_linears(chosen, lambda name, _: name != "mlp.up_proj")
    assert (told.fused, len(told.replaced)) == ({}, 2)
    assert tw.replace_linears(models.InBlock(), mlps=False).fused == {}


@pytest.mark.parametrize("kind", ["Gated", "Sequential"])
@pytest.mark.parametrize("change", ["hook", "activation", "layer", "forward", "activation hook"])
def test_what_changes_later_is_seen(torch: Any, tw: Any, kind: str, change: str) -> None:
    """Hooks, other modules: then each layer is called by itself, as PyTorch calls it."""
    nn = torch.nn
    if kind == "Gated":
        theirs = models.Gated().double()
        first, activation = "gate_proj", "act_fn"
    else:
        theirs = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8)).double()
        first, activation = "0", "1"
    ours = copy.deepcopy(theirs)
    tw.replace_linears(ours)
    calls: list[str] = []
    for model in (theirs, ours):
        if change == "hook":
            getattr(model, first).register_forward_hook(lambda *_: calls.append("hook"))
        elif change == "activation hook":
            getattr(model, activation).register_forward_hook(lambda *_: calls.append("hook"))
        elif change == "activation":
            setattr(model, activation, nn.ELU())
        elif change == "layer":
            setattr(model, first, nn.Sequential(getattr(model, first), nn.Hardtanh()))
        else:
            getattr(model, first).forward = lambda x: torch.ones(3, 8).double()
    x = torch.randn(3, 8).double()
    torch.testing.assert_close(ours(x), theirs(x))
    assert len(calls) == (2 if "hook" in change else 0)


def test_other_biases_are_left(torch: Any, tw: Any) -> None:
    model = models.Gated()
    model.gate_proj = torch.nn.Linear(8, 8, bias=True)
    assert tw.replace_linears(model).fused == {}
    model = models.Gated(True)
    tw.replace_linears(model)
    wanted = model(torch.ones(2, 8))
    model.gate_proj.bias = torch.nn.Parameter(torch.zeros(8))
    model.up_proj.bias = None
    assert model(torch.ones(2, 8)).shape == wanted.shape


def test_hooks_of_all_modules_see_each_layer(torch: Any, tw: Any) -> None:
    """Profilers and counters of operations set such hooks, for a while."""
    nn, modules = torch.nn, torch.nn.modules.module
    row = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.ELU())
    for theirs in (models.Gated(), row):
        ours = copy.deepcopy(theirs)
        assert tw.replace_linears(ours).fused
        seen: list[list[int]] = []
        for model in (theirs, ours):
            called: list[int] = []
            names = {id(module): at for at, module in enumerate(model.modules())}
            hook = modules.register_module_forward_hook(
                lambda module, *_, called=called, names=names: called.append(names[id(module)])
            )
            try:
                model(torch.ones(2, 8))
            finally:
                hook.remove()
            seen.append(called)
        assert seen[0] == seen[1]
        assert len(seen[0]) == 5


@pytest.mark.parametrize("change", ["forward", "function"])
def test_a_class_that_changes_later_is_seen(
    torch: Any, tw: Any, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another ``forward`` of the class, another function under the global name that it calls."""
    ours = models.Up()
    theirs = copy.deepcopy(ours)
    assert tw.replace_linears(ours).fused
    if change == "forward":
        monkeypatch.setattr(models.Up, "forward", lambda self, x: self.one(x))
    else:
        monkeypatch.setattr(torch.nn.functional, "gelu", lambda x, approximate: x * 2)
    x = torch.randn(2, 8)
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(torch.compile(ours, backend="eager")(x), theirs(x))


def test_a_pickled_mlp_whose_source_has_changed(
    torch: Any, tw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint is read by a later version of the code, whose ``forward`` then counts."""
    ours = models.Up()
    tw.replace_linears(ours)
    saved = pickle.dumps(ours)
    monkeypatch.setattr(models.Up, "forward", models.Branching.forward)
    again = pickle.loads(saved)
    assert type(again) is models.Up
    again.eval()
    x = torch.randn(2, 8)
    wanted = models.Branching.forward(again, x)
    torch.testing.assert_close(again(x), wanted)


@pytest.mark.parametrize("change", ["partial", "call"])
def test_a_pickled_mlp_whose_class_has_changed(
    torch: Any, tw: Any, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a later version ``forward`` is no function, or the class has a ``__call__`` of its own."""
    ours = models.Up()
    tw.replace_linears(ours)
    saved = pickle.dumps(ours)
    del ours
    gc.collect()  # the class goes, too, as in a process of its own
    if change == "partial":
        monkeypatch.setattr(models.Up, "forward", functools.partial(torch.neg))
    else:
        monkeypatch.setattr(models.Up, "__call__", lambda _, x: -x, raising=False)
    again = pickle.loads(saved)
    assert type(again) is models.Up
    x = torch.randn(2, 8)
    torch.testing.assert_close(again(x), -x)


def test_an_inherited_call_of_ones_own(torch: Any, tw: Any) -> None:
    """A ``__call__`` of a base class may do more than call ``forward``."""
    ours = models.Called()
    theirs = copy.deepcopy(ours)
    assert tw.replace_linears(ours).fused == {}
    x = torch.randn(2, 8)
    torch.testing.assert_close(ours(x), theirs(x))


def test_a_copy_of_an_mlp_whose_activation_has_a_hook(
    torch: Any, tw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks come and go: the copy is one MLP as soon as it has none."""
    ours = models.Gated()
    tw.replace_linears(ours)
    ours.act_fn.register_forward_hook(_ignored)
    seen = counted(monkeypatch)
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        seen.clear()
        x = torch.randn(2, 8)
        wanted = again(x)
        assert not any(seen)
        again.act_fn._forward_hooks.clear()
        torch.testing.assert_close(again(x), wanted)
        assert any(seen)
    assert tw.replace_linears(_hooked(models.Gated())).fused == {}


def _ignored(*_: Any) -> None:
    """Do nothing; a hook that can be pickled."""


def _hooked(model: Any) -> Any:
    model.act_fn.register_forward_hook(_ignored)
    return model


def test_a_class_of_ones_own_state(torch: Any, tw: Any) -> None:
    """A module that leaves something out of its pickle leaves it out when it is one MLP, too."""
    ours = models.Locked()
    assert tw.replace_linears(ours).fused
    again = pickle.loads(pickle.dumps(ours))
    assert not hasattr(again, "lock")
    torch.testing.assert_close(again(torch.ones(2, 8)), ours(torch.ones(2, 8)))


def test_classes_go_with_their_modules(torch: Any, tw: Any) -> None:
    """The class of an MLP lives no longer than the class of the module that became one."""

    def made() -> Any:
        kind: Any = type("Made", (models.Up,), {})
        model = kind()
        assert tw.replace_linears(model).fused
        assert type(copy.deepcopy(model)) is type(model)
        return weakref.ref(kind)

    kind = made()
    gc.collect()
    assert kind() is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_modules_of_torchscript_are_left(torch: Any, tw: Any) -> None:
    script = torch.jit.script(torch.nn.Linear(8, 8))
    model = torch.nn.Sequential(models.Up(), script, torch.nn.Linear(8, 8))
    told = tw.replace_linears(model)
    assert told.replaced == ("0.one", "0.other", "2")
    assert list(told.fused) == ["0"]


def test_nothing_is_replaced_if_the_choice_fails(torch: Any, tw: Any) -> None:
    model = models.Up()
    with pytest.raises(KeyError):
        tw.replace_linears(model, lambda name, _: {"one": True}[name])
    assert all(type(layer) is torch.nn.Linear for layer in model.children())
