"""A call like one before it does what the call by itself does: bits, refusals, where it writes.

On a GPU that is none, so that it is tested on any machine; test_repeat.py has a real one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from computing_gpu import FRONT_DOOR, ComputingGpu, computing_gpu  # noqa: F401
from matmul_reference import assert_tensors_right

import tilewise
from tilewise.arrays import repeat
from tilewise.arrays.libraries import library_of
from tilewise.matmul import matmul

BYTES = 3072  # of memory, so little that arrays often overlap
EPILOGUES: dict[str, tuple[Any, tuple[str, ...], str | None]] = {
    "none": (None, (), None),
    "bias": (lambda acc, bias: acc + bias, ("bias",), None),
    "residual": (lambda acc, bias, residual: tilewise.relu(acc + bias) + residual,
                 ("bias", "residual"), None),
    "scaled": (lambda acc, residual, by: by * (acc + residual), ("residual", "by"), None),
    "two": (lambda acc, residual: (acc * residual, acc), ("residual",), None),
    "one": (lambda acc: (acc,), (), None),
    "pairs": (lambda gate, up, residual: tilewise.relu(gate) * up + residual, ("residual",),
              "interleaved"),
    "apart": (lambda gate, up: (gate * up, up), (), "apart"),
}  # fmt: skip


class Calls:
    """Calls of one form, with arrays at random places of one memory."""

    def __init__(self, torch: Any, rng: np.random.Generator) -> None:
        self.torch, self.rng = torch, rng
        self.dtype = str(rng.choice(["float16", "bfloat16", "float32", "float64"]))
        self.memory = torch.zeros(BYTES, dtype=torch.uint8)
        values = torch.from_numpy(rng.integers(-3, 4, BYTES // 2).astype(np.float32))
        kind = getattr(torch, self.dtype)
        self.first = values[: BYTES // kind.itemsize].to(kind).view(torch.uint8).clone()
        self.m, self.n, self.k = (int(rng.integers(1, 7)) for _ in range(3))
        self.batch = () if rng.random() < 0.7 else (2,)
        self.epilogue = str(rng.choice(list(EPILOGUES)))
        self.out = str(rng.choice(["none", "anywhere", "tuple", "c", "residual"]))
        self.beta = float(rng.choice([0, 1]))
        self.pads = [int(rng.choice([0, 0, 3])) for _ in range(12)]
        self.turns = [bool(rng.random() < 0.3) for _ in range(12)]
        self.kinds = [self.dtype if rng.random() < 0.7 else "float32" for _ in range(12)]

    def array(self, which: int, *shape: int, dtype: str = "") -> Any:
        """Of one layout for each number, wherever that is."""
        kind = getattr(self.torch, dtype or self.dtype)
        strides: list[int] = []
        step = 1
        for i, extent in enumerate(reversed(shape)):
            strides.insert(0, step)
            step *= extent + (self.pads[which] if i == 0 else 0)
        if self.turns[which] and len(shape) > 1:  # columns in one piece
            strides[-2:] = 1, shape[-2] + self.pads[which]
        at = 16 * int(self.rng.integers(BYTES // 16 - 64))
        at += kind.itemsize * int(self.rng.choice([0, 0, 0, 1]))
        elements = self.memory[at : at + kind.itemsize * (step + 64)]
        elements = elements[: len(elements) // kind.itemsize * kind.itemsize].view(kind)
        return elements.as_strided(shape, strides)

    def call(self) -> dict[str, Any]:
        """The arguments of a call."""
        function, names, pairs = EPILOGUES[self.epilogue]
        b = self.array(1, *self.batch, self.k, self.n)
        shape = *self.batch, self.m, self.n
        if pairs == "apart":
            b = b, self.array(2, *self.batch, self.k, self.n)
        elif pairs is not None:
            b = self.array(1, *self.batch, self.k, 2 * self.n)
        given: dict[str, Any] = {"a": self.array(0, *self.batch, self.m, self.k), "b": b}
        if pairs is None and (self.beta or self.out == "c"):
            given |= {"c": self.array(3, *shape), "beta": self.beta}
        makes: dict[str, Any] = {
            "bias": lambda: self.array(4, self.n, dtype=self.kinds[4]),
            "residual": lambda: self.array(5, *shape, dtype=self.kinds[5]),
            "by": lambda: float(self.rng.choice([1.0, 2.0, 0.0, -0.0])),
        }
        if function is not None:
            given |= {"epilogue": function, **{name: makes[name]() for name in names}}
        if pairs == "interleaved":
            given["pairs"] = pairs
        if self.out != "none":
            out = self.array(6, *shape)
            alias = given.get(self.out)
            if alias is not None and self.rng.random() < 0.7:
                out = alias
            count = 2 if self.epilogue in ("two", "apart") else 1
            outs = out, *(self.array(7, *shape) for _ in range(count - 1))
            given["out"] = outs if count > 1 or self.out == "tuple" else out
        return given

    def outcome(self, given: dict[str, Any]) -> tuple[Any, ...]:
        """What a call returns, its type and whether it is ``out``, and all memory behind it."""
        self.memory.copy_(self.first)
        given = dict(given)
        try:
            found = matmul(given.pop("a"), given.pop("b"), given.pop("c", None), **given)
        except (TypeError, ValueError) as error:
            return type(error), str(error), self.memory.numpy().tobytes()
        results = found if isinstance(found, tuple) else (found,)
        outs = given.get("out")
        own = [] if outs is None else [*outs] if isinstance(outs, tuple) else [outs]
        return (
            type(found), [any(x is y for y in own) for x in results],
            [(x.shape, x.stride(), x.dtype) for x in results],
            [x.double().numpy().tobytes() for x in results],
            self.memory.numpy().tobytes(),
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("computing_gpu")
def test_any_call_again(torch: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    closely: list[Any] = []
    check = FRONT_DOOR.check

    def looked_at(*args: Any) -> Any:
        closely.append(args)
        return check(*args)

    monkeypatch.setattr(FRONT_DOOR, "check", looked_at)
    known = repeat._records
    again = refused = total = 0
    for _ in range(25):
        calls = Calls(torch, rng)
        known.clear()
        for _ in range(16):
            given = calls.call()
            monkeypatch.setattr(repeat, "_records", {})
            wanted = calls.outcome(given)
            monkeypatch.setattr(repeat, "_records", known)
            closely.clear()
            found = calls.outcome(given)
            assert found == wanted, (calls.epilogue, calls.out)
            again += not closely
            refused += wanted[0] in (TypeError, ValueError)
            total += 1
    assert again > total / 4
    assert refused > total / 20


@pytest.mark.usefixtures("computing_gpu")
@pytest.mark.parametrize("form", ["bias", "residual", "two", "pairs", "apart"])
def test_out_and_an_epilogue_are_known_again(torch: Any, form: str) -> None:
    """New arrays of the same layout, results given as an array or a tuple of them."""
    function, names, pairs = EPILOGUES[form]

    def arrays() -> dict[str, Any]:
        b = torch.randn(5, 4), torch.randn(5, 4)
        given: dict[str, Any] = {"a": torch.randn(3, 5), "b": b[0], "epilogue": function}
        if pairs == "apart":
            given["b"] = b
        elif pairs is not None:
            given |= {"b": torch.cat(b, dim=1), "pairs": pairs}
        for name in names:
            given[name] = torch.randn(4) if name == "bias" else torch.randn(3, 4)
        outs = torch.empty(3, 4), torch.empty(3, 4)
        given["out"] = outs if form in ("two", "apart") else outs[0]
        return given

    matmul(**arrays())
    for _ in range(3):
        given = arrays()
        expected = matmul(**{name: x for name, x in given.items() if name != "out"})
        with only_repeats():
            found = matmul(**given)
        if isinstance(found, tuple):
            assert all(x is y for x, y in zip(found, given["out"], strict=True))
            assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))
        else:
            assert found is given["out"]
            assert torch.equal(found, expected)


@pytest.mark.usefixtures("computing_gpu")
def test_as_many_results_as_before(torch: Any) -> None:
    """A call that gives as many arrays, of the same layouts, is not the same call."""
    a, b, x, y = (torch.randn(4, 4) for _ in "abxy")

    def two(acc: Any) -> Any:
        return acc + 1, acc

    for _ in range(2):
        matmul(a, b, epilogue=two, out=(x, y))
        matmul(a, b, epilogue=two)
    with pytest.raises(ValueError, match="out has 1 array; the epilogue has 2"):
        matmul(a, b, y, epilogue=two, out=x)
    with pytest.raises(ValueError, match="out has 0 arrays; the epilogue has 2"):
        matmul(a, b, epilogue=two, out=())
    with pytest.raises(ValueError, match="out has 2 arrays; without an epilogue there is 1"):
        matmul(a, b, out=(x, y))


@pytest.mark.usefixtures("computing_gpu")
@pytest.mark.parametrize("name", ["c", "residual", "bias"])
def test_in_place_again(torch: Any, name: str) -> None:
    """C, and an operand of the result's layout, may be the result; one that broadcasts may not."""
    a, b = torch.randn(3, 5), torch.randn(5, 4)

    def call(x: Any, out: Any) -> Any:
        if name == "c":
            return matmul(a, b, x, beta=1, out=out)
        return matmul(a, b, epilogue=lambda acc, x: acc + x, x=x, out=out)

    for turn in range(3):
        memory = torch.randn(12)
        x = memory[:4] if name == "bias" else memory.view(3, 4)
        expected = a @ b + x
        call(x.clone(), torch.empty(3, 4))
        if name == "bias":
            with pytest.raises(ValueError, match="out overlaps x"):
                call(x, memory.view(3, 4))
            continue
        if not turn:
            call(x.clone(), memory.view(3, 4).clone())
        with only_repeats():
            call(x, x)
        torch.testing.assert_close(x, expected)
        longer = torch.randn(16)
        with pytest.raises(ValueError, match=f"out overlaps {'c' if name == 'c' else 'x'}"):
            call(longer[:12].view(3, 4), longer[4:].view(3, 4))


class only_repeats:
    """Calls that must all have been seen before."""

    def __enter__(self) -> None:
        self._kept = FRONT_DOOR.check
        FRONT_DOOR.check = self._refuse

    def __exit__(self, *_: object) -> None:
        FRONT_DOOR.check = self._kept

    def _refuse(self, *_: Any) -> None:
        raise AssertionError("this call was looked at closely")


def test_streams_and_contexts(torch: Any, computing_gpu: ComputingGpu) -> None:  # noqa: F811
    """A repeated call asks for the stream of its time, and makes the GPU's context current."""
    library: Any = library_of(torch.zeros(1))
    a, b = torch.randn(3, 5), torch.randn(5, 4)
    out, bias = torch.empty(3, 4), torch.randn(4)
    ways: list[Any] = [
        lambda: matmul(a, b), lambda: matmul(a, b, out=out),
        lambda: matmul(a, b, epilogue=lambda acc, bias: acc + bias, bias=bias),
    ]  # fmt: skip
    for way in ways:
        expected = way().clone()
        for stream in (7, 8, 9, 8):
            library.stream = lambda _ordinal, stream=stream: stream
            computing_gpu.is_ready = stream != 9
            switches = computing_gpu.switches
            with only_repeats():
                assert torch.equal(way(), expected)
            assert computing_gpu.streams[-1] == stream
            assert computing_gpu.switches - switches == (stream == 9)
        computing_gpu.is_ready = True


@pytest.mark.usefixtures("computing_gpu")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_layers(torch: Any, tw: Any, dtype: str, has_bias: bool) -> None:
    """With other tensors of the same layout, whether autograd records them or not."""
    kind = getattr(torch, dtype)

    def tensors(*leaves: str) -> list[Any]:
        made = {"x": torch.randn(6, 5), "w": torch.randn(4, 5), "bias": torch.randn(4)}
        if not has_bias:
            del made["bias"]
        return [each.to(kind).requires_grad_(name in leaves) for name, each in made.items()]

    def right(found: Any, given: list[Any]) -> None:
        x, w, *bias = (each.detach() for each in given)
        c = bias[0].expand(6, 4) if bias else None
        assert_tensors_right(found.detach(), x, w.mT, 1, int(has_bias), c)

    right(tw.linear(*(first := tensors())), first)
    for leaves in ((), ("w",), ("x", "w", "bias"), ("bias",), ()):
        given = tensors(*leaves)
        is_recorded = any(each.requires_grad for each in given)
        with only_repeats():
            found = tw.linear(*given)
            with torch.no_grad():
                right(plain := tw.linear(*given), given)
        right(found, given)
        assert not plain.requires_grad
        assert found.requires_grad is is_recorded
        if not is_recorded:
            continue
        of_d = torch.randn(6, 4).to(kind)
        found.backward(of_d)
        x, w, *bias = given
        if x.requires_grad:
            assert_tensors_right(x.grad, of_d, w.detach())
        if w.requires_grad:
            assert_tensors_right(w.grad, of_d.mT, x.detach())
        for each in bias:
            if each.requires_grad:
                assert_tensors_right(each.grad, torch.ones(6).to(kind), of_d)


@pytest.mark.usefixtures("computing_gpu")
def test_a_layer_after_a_product_like_it(torch: Any, tw: Any) -> None:
    """What a product takes and a layer does not is refused, though the product is known."""
    x, w, bias = torch.randn(3, 2, 5), torch.randn(3, 4, 5), torch.randn(2, 4)
    biased = tw.linear.__globals__["BIASED"]
    for _ in range(2):
        matmul(x, w, transpose_b=True)
        matmul(x, w, transpose_b=True, epilogue=biased, bias=bias)
        tw.linear(x, w[0], bias[0])
    for arguments, words in (
        ((x, w), "weight has shape"), ((x, w, bias[0]), "weight has shape"),
        ((x, w[0], bias), "bias has shape"), ((x, w[0], bias[0].double()), "dtype"),
        ((x, w[0].double()), "dtype"), ((x.int(), w[0]), "dtype"),
    ):  # fmt: skip
        leaf = arguments[1].clone().requires_grad_()
        for given in (arguments, (arguments[0], leaf, *arguments[2:])):
            with pytest.raises((TypeError, ValueError), match=words):
                tw.linear(*given)


@pytest.mark.usefixtures("computing_gpu")
def test_an_invariant_layer_is_not_the_other_one(torch: Any, tw: Any) -> None:
    x, w = torch.randn(3, 5), torch.randn(4, 5)
    forms = []
    for on in (False, True):
        tilewise.set_invariant(on)
        try:
            tw.linear(x, w)
        finally:
            tilewise.set_invariant(False)
        forms.append({how for how, _ in repeat._records})
    assert forms[1] - forms[0] == {("linear", True)}
