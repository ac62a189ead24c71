"""A layer that repeats cached launches computes what it computes in its first call.

On a GPU that is none, where calls are launched again as on one that is. All values are small whole
numbers, so that every sum is exact and PyTorch's results have to be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib import import_module
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from computing_gpu import ComputingGpu, array_at, computing_gpu, wide  # noqa: F401

import tilewise
from tilewise.arrays import repeat

FUNCTIONS = "linear", "mlp", "gated"


def cache_module() -> Any:
    """Return the module under test, whose import needs PyTorch."""
    return import_module("tilewise.torch.call_cache")


class Model:
    """Weights of layers by tilewise, and what PyTorch computes with them."""

    def __init__(
        self,
        torch: Any,
        tw: Any,
        rng: np.random.Generator,
        function: str,
        largest: int = 2,
        **place: Any,
    ) -> None:
        self.place, self.largest = place, largest
        self.torch, self.tw, self.rng, self.function = torch, tw, rng, function
        self.n = int(rng.integers(1, 5))
        self.k = self.n if rng.random() < 0.5 else int(rng.integers(1, 5))
        shapes = {"linear": [(self.n, self.k)], "mlp": [(3, self.k), (self.n, 3)]}
        shapes["gated"] = [(3, self.k), (3, self.k), (self.n, 3)]
        self.weights = [self.leaf(*shape) for shape in shapes[function]]
        self.biases = [self.leaf(len(w)) for w in self.weights]
        if rng.random() < 0.3:
            self.weights[0].data = self.weights[0].data.mT.contiguous().mT

    def values(self, *shape: int) -> Any:
        values = self.rng.integers(-self.largest, self.largest + 1, shape).astype(np.float32)
        return self.torch.from_numpy(np.ascontiguousarray(values)).to(**self.place)

    def leaf(self, *shape: int) -> Any:
        return self.torch.nn.Parameter(self.values(*shape))

    def turned(self, x: Any) -> Any:
        """The same values, at times in another layout or at an odd address."""
        way = self.rng.random()
        if way < 0.15 and x.ndim > 1:
            return x.mT.contiguous().mT
        if way < 0.25 and x.numel():
            whole = x.new_empty(x.numel() + 1)
            return whole[1:].view(x.shape).copy_(x)
        return x

    def ours(self, x: Any, has_bias: bool) -> Any:
        *first, last = self.weights
        *biases, last_bias = self.biases if has_bias else [None] * len(self.weights)
        if self.function == "linear":
            return self.tw.linear(x, last, last_bias)
        if self.function == "mlp":
            return self.tw.mlp(
                x, first[0], last, activation="relu", bias=biases[0], down_bias=last_bias
            )
        bias = tuple(biases) if has_bias else None
        return self.tw.mlp(x, tuple(first), last, activation="relu", bias=bias, down_bias=last_bias)

    def theirs(self, x: Any, has_bias: bool) -> Any:
        linear = self.torch.nn.functional.linear
        *first, last = self.weights
        *biases, last_bias = self.biases if has_bias else [None] * len(self.weights)
        hidden = [linear(x, w, b) for w, b in zip(first, biases, strict=True)]
        if hidden:
            x = self.torch.relu(hidden[0])
            x = x * hidden[1] if len(hidden) == 2 else x
        return linear(x, last, last_bias)

    def outcome(self, call: Callable[[Any, bool], Any], x: Any, has_bias: bool, g: Any) -> Any:
        """The result and the gradients that there are, and then those of ``x`` alone."""
        y = call(x, has_bias)
        found = [y.detach()]
        if y.requires_grad:
            used = [x, *self.weights, *(self.biases if has_bias else [])]
            leaves = [each for each in used if each.requires_grad]
            each = self.torch.autograd.grad(y, leaves, g, retain_graph=True)
            found += each
            found += self.torch.autograd.grad(y, leaves[:1], g)
        return found


def computed_sums(torch: Any) -> Callable[..., Any]:
    """Return a ``column_sums`` by NumPy that can be repeated, like the launch on a Hopper GPU."""

    def column_sums(x: Any, dtype: Any, key: Any = None) -> Any:
        shape, strides = tuple(x.shape), tuple(x.itemsize * each for each in x.stride())
        name = str(x.dtype).removeprefix("torch.")
        kind = np.dtype(np.uint16 if name == "bfloat16" else name)

        def run(addresses: Any) -> Any:
            rows = wide(array_at(addresses[0], shape, strides, kind), "float32")
            return torch.from_numpy(rows.reshape(-1, shape[-1]).sum(0)).to(dtype)

        if key is not None:
            repeat.remember(key, SimpleNamespace(run=run))  # type: ignore[arg-type]
        return run([x.data_ptr()])

    return column_sums


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("has_guards", [True, False])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("computing_gpu")
def test_any_calls(
    torch: Any, tw: Any, function: str, has_guards: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever changes from call to call: values, shapes, layouts, what needs a gradient."""
    module = cache_module()
    if not has_guards:
        monkeypatch.setattr(module, "_has_guards", lambda: False)
    if seed % 2:  # otherwise PyTorch computes them in each call
        monkeypatch.setattr(module, "column_sums", computed_sums(torch))
    rng = np.random.default_rng(seed)
    of_tensors: list[bool] = []
    own = module.CachedCall.addresses

    def addresses(self: Any, form: Any, tensors: Any) -> Any:
        found = own(self, form, tensors)
        of_tensors.append(found is not None)
        return found

    monkeypatch.setattr(module.CachedCall, "addresses", addresses)
    for _ in range(4):
        model = Model(torch, tw, rng, function)
        shape: tuple[int, ...] = (2,)
        for _ in range(25):
            if rng.random() < 0.25:
                shape = tuple(rng.integers(1, 4, rng.integers(0, 3)).tolist())
            if rng.random() < 0.1:
                every = [*model.weights, *model.biases]
                each = every[rng.integers(len(every))]
                each.requires_grad_(not each.requires_grad)
            if rng.random() < 0.1:
                w = model.weights[0]
                w.data = w.data.mT.contiguous().mT if w.is_contiguous() else w.data.contiguous()
            if rng.random() < 0.1:
                model.weights[-1].data = model.values(*model.weights[-1].shape)
            x = model.turned(model.values(*shape, model.k))
            x.requires_grad_(bool(rng.random() < 0.8))
            g = model.turned(model.values(*shape, model.n))
            has_bias = bool(rng.random() < 0.9)
            with torch.set_grad_enabled(bool(rng.random() < 0.9)):
                wanted = model.outcome(model.theirs, x, has_bias, g)
                found = model.outcome(model.ours, x, has_bias, g)
            for ours, theirs in zip(found, wanted, strict=True):
                assert ours.shape == theirs.shape
                assert torch.equal(ours, theirs)
    assert len(of_tensors) / 16 < sum(of_tensors) < len(of_tensors)


@pytest.mark.parametrize("function", ["mlp", "gated"])
@pytest.mark.usefixtures("computing_gpu")
def test_a_check_sees_the_products_of_cached_calls(torch: Any, tw: Any, function: str) -> None:
    """Four have epilogues: two forward, and in each of two backward passes the derivative's."""
    from tilewise.bench import model_checks

    model = Model(torch, tw, np.random.default_rng(0), function)
    x, g = model.leaf(5, model.k), model.values(5, model.n)

    def run() -> Any:
        return model.outcome(model.ours, x, True, g)

    before = [run() for _ in range(3)][-1]
    for _ in range(2):
        shares = model_checks.fused_shares(run)
        assert len(shares) == 4
        assert max(shares.values()) <= 1, shares
    assert all(torch.equal(y, z) for y, z in zip(run(), before, strict=True))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_is_looked_up_again(
    torch: Any,
    tw: Any,
    computing_gpu: ComputingGpu,  # noqa: F811
    function: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = cache_module()
    model = Model(torch, tw, np.random.default_rng(0), function)
    looked: list[Any] = []

    def look(how: Any, tensors: Any) -> Any:
        if how[0] != "column sums":  # which PyTorch computes
            looked.append(how)
        return repeat.look(how, tensors)

    monkeypatch.setattr(module, "look", look)
    counts = []
    for _ in range(5):
        looked.clear()
        computing_gpu.streams.clear()
        x, g = model.values(2, 3, model.k).requires_grad_(), model.values(2, 3, model.n)
        wanted = model.outcome(model.theirs, x, True, g)
        found = model.outcome(model.ours, x, True, g)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        counts.append((len(looked), len(computing_gpu.streams)))
    products = counts[0][1]
    assert counts[0] == (products, products)
    assert (0, products) in counts[2:], counts


@pytest.mark.usefixtures("computing_gpu")
def test_second_derivatives_of_cached_layers(torch: Any, tw: Any) -> None:
    for function in FUNCTIONS:
        model = Model(torch, tw, np.random.default_rng(1), function)
        for _ in range(4):
            x, g = model.values(3, model.k).requires_grad_(), model.values(3, model.n)
            found = []
            for call in (model.theirs, model.ours):
                (of_x,) = torch.autograd.grad(call(x, True), x, g, create_graph=True)
                found.append((of_x, *torch.autograd.grad(of_x.sum(), model.weights)))
            for theirs, ours in zip(*found, strict=True):
                assert torch.equal(theirs, ours)


@pytest.mark.usefixtures("computing_gpu")
def test_an_input_is_not_taken_for_a_weight(torch: Any, tw: Any) -> None:
    """Where both have one shape, and now the one needs a gradient, now the other."""
    x, w, g = (torch.arange(4.0).reshape(2, 2) + i for i in range(3))
    for of_x in (False, True) * 4 + (False,) * 3 + (True,) * 3:
        leaf = (x if of_x else w).clone().requires_grad_()
        y = tw.linear(leaf, w) if of_x else tw.linear(x, leaf)
        (found,) = torch.autograd.grad(y, leaf, g)
        assert torch.equal(found, g @ w if of_x else g.mT @ x)
    weight = w.clone()
    for of_x in (False,) * 4 + (True,) * 4:
        weight.requires_grad_(not of_x)
        leaf = x.clone().requires_grad_(of_x)
        (found,) = torch.autograd.grad(tw.linear(leaf, weight), leaf if of_x else weight, g)
        assert torch.equal(found, g @ w if of_x else g.mT @ x)


@pytest.mark.usefixtures("computing_gpu")
def test_functions_are_traced_at_each_call(torch: Any, tw: Any) -> None:
    """Whatever a function reads may have changed, in the forward and in the backward pass."""

    class Scaled:
        scale = 1.0

        def __call__(self, acc: Any) -> Any:
            return tilewise.where(acc > 0, acc, 0.0) * self.scale

        def method(self, acc: Any) -> Any:
            return self(acc)

    model = Model(torch, tw, np.random.default_rng(2), "mlp")
    scaled = Scaled()
    for given in (scaled, lambda acc: scaled(acc), Scaled.method.__get__(scaled)):
        for scaled.scale in (1.0, 1.0, 1.0, 1.0, 2.0, 4.0):
            x = model.values(2, 3, model.k).requires_grad_()
            found = tw.mlp(x, *model.weights, activation=given)
            hidden = torch.relu(x @ model.weights[0].mT) * scaled.scale
            wanted = hidden @ model.weights[1].mT
            assert torch.equal(found, wanted)
            of = [torch.autograd.grad(y.sum(), (x, *model.weights)) for y in (found, wanted)]
            assert all(map(torch.equal, *of))


@pytest.mark.usefixtures("computing_gpu")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_weight_that_no_gradient_reads(torch: Any, tw: Any, function: str) -> None:
    """Its strides decide those of its gradient, though the backward pass does not compare it."""
    shapes = {"linear": [(2, 3)], "mlp": [(4, 3), (2, 4)]}
    shapes["gated"] = [(4, 3), *shapes["mlp"]]
    calls = tw.linear.__globals__["_layers"] if function == "linear" else None
    calls = tw.mlp.__globals__["_mlps"] if calls is None else calls
    for i, is_new in product(range(len(shapes[function])), (False, True)):
        model = Model(torch, tw, np.random.default_rng(3), function)
        model.weights = [model.leaf(*shape) for shape in shapes[function]]
        for j, weight in enumerate(model.weights):
            weight.requires_grad_(j == i)
        for turn in range(8):
            old = model.weights[i]
            if turn == 4:
                turned = old.data.mT.contiguous().mT
                if is_new:  # with the id of a tensor that is no more
                    model.weights[i] = torch.nn.Parameter(turned)
                    if id(old) in calls:
                        calls[id(model.weights[i])] = calls.pop(id(old))
                else:
                    old.data = turned
            x, g = model.values(5, 3), model.values(5, 2)
            ours, theirs = (
                torch.autograd.grad(call(x, False), model.weights[i], g)[0]
                for call in (model.ours, model.theirs)
            )
            assert torch.equal(ours, theirs)
            assert ours.stride() == model.weights[i].stride()


@pytest.mark.usefixtures("computing_gpu")
def test_the_dtype_of_a_bias_changes(torch: Any, tw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[Any] = []

    def column_sums(x: Any, dtype: Any, key: Any = None) -> Any:
        def run(_: Any) -> Any:
            launched.append(dtype)
            return torch.zeros(x.shape[-1], dtype=dtype)

        if key is not None:
            repeat.remember(key, SimpleNamespace(run=run))  # type: ignore[arg-type]
        return run(None)

    monkeypatch.setattr(cache_module(), "column_sums", column_sums)
    model = Model(torch, tw, np.random.default_rng(4), "mlp")
    for is_wide in (False,) * 4 + (True,) * 4:
        dtypes = [torch.float64 if is_wide else torch.float32, torch.float32]
        for bias, dtype in zip(model.biases, dtypes, strict=True):
            bias.data = bias.data.to(dtype)
        launched.clear()
        model.ours(model.values(2, model.k), True).backward(model.values(2, model.n))
        assert launched == dtypes[::-1]
        for bias in model.biases:
            bias.grad = None


@pytest.mark.usefixtures("computing_gpu")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_and_saved_tensors_of_other_types(torch: Any, tw: Any, function: str) -> None:
    """As a collective's result that has not arrived: a tensor around one, with no address."""

    class Around(torch.Tensor):  # type: ignore[misc]
        inner: Any

        @staticmethod
        def __new__(cls, inner: Any) -> Any:
            options = {"strides": inner.stride(), "dtype": inner.dtype, "device": inner.device}
            found = torch.Tensor._make_wrapper_subclass(cls, inner.shape, **options)
            found.inner = inner
            return found

        @classmethod
        def __torch_dispatch__(
            cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            plain = torch.utils._pytree.tree_map_only(
                Around, lambda x: x.inner, (args, kwargs or {})
            )
            found = operator(*plain[0], **plain[1])
            return Around(found) if operator is torch.ops.aten.detach.default else found

    model = Model(torch, tw, np.random.default_rng(5), function)
    hooks = torch.autograd.graph.saved_tensors_hooks
    for turn in range(8):
        x, g = model.values(3, model.k).requires_grad_(), model.values(3, model.n)
        leaves = [x, *model.weights, *model.biases]
        wanted = torch.autograd.grad(model.theirs(x, True), leaves, g)
        if turn % 4 == 3:
            with hooks(lambda y: y, Around):
                y = model.ours(x, True)
        else:
            y = model.ours(x, True)
        found = torch.autograd.grad(y, leaves, Around(g) if turn % 4 == 2 else g)
        for ours, theirs in zip(found, wanted, strict=True):
            assert torch.equal(ours, theirs)


def test_guards_do_not_depend_on_the_default_dtype(torch: Any, tw: Any) -> None:
    module = cache_module()
    wanted = module._has_guards()
    torch.set_default_dtype(torch.float64)
    try:
        assert module._has_guards.__wrapped__() is wanted
    finally:
        torch.set_default_dtype(torch.float32)


def test_calls_under_autocast_have_one_cache(torch: Any, tw: Any) -> None:
    """A weight has one cache, whether autocast is on or off, and its casts have none."""
    model = Model(torch, tw, np.random.default_rng(6), "mlp")
    layer = Model(torch, tw, np.random.default_rng(6), "linear")
    x = model.values(3, model.k)
    for of, each in (("_mlps", model), ("_layers", layer)):
        caches = (tw.mlp if each is model else tw.linear).__globals__[of]
        caches.clear()
        x = each.values(3, each.k)
        for is_on in (True, False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=is_on):
                for _ in range(3):
                    each.ours(x, True)
            assert [*caches] == [id(each.weights[-1])]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("computing_gpu")
def test_any_calls_under_autocast(
    torch: Any, tw: Any, function: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are PyTorch's, whatever changes within a region of autocast and between regions.

    The values are so small that 16-bit sums are exact. PyTorch keeps the casts of weights within a
    region, and reads old values if a weight changes there; here it has to cast them in each call.
    """
    module = cache_module()
    monkeypatch.setattr(module, "column_sums", computed_sums(torch))
    rng = np.random.default_rng(seed)
    hits: dict[bool, list[bool]] = {False: [], True: []}
    own = module.CachedCall.addresses
    is_on = False

    def addresses(self: Any, form: Any, tensors: Any) -> Any:
        found = own(self, form, tensors)
        hits[is_on].append(found is not None)
        return found

    monkeypatch.setattr(module.CachedCall, "addresses", addresses)
    halves = torch.bfloat16, torch.float16
    for _ in range(4):
        model = Model(torch, tw, rng, function, largest=1)
        shape: tuple[int, ...] = (2,)
        regions, half, is_on = ExitStack(), torch.bfloat16, False
        for _ in range(40):
            if rng.random() < 0.2:
                shape = tuple(rng.integers(1, 4, rng.integers(0, 3)).tolist())
            if rng.random() < 0.2:  # leave every region, and then enter one or two
                regions.close()
                half = halves[int(rng.random() < 0.3)]
                for _ in range(rng.integers(1, 3)):
                    is_on = bool(rng.random() < 0.8)
                    is_kept = bool(rng.random() < 0.8)
                    regions.enter_context(
                        torch.autocast("cpu", half, enabled=is_on, cache_enabled=is_kept)
                    )
            if rng.random() < 0.1:
                every = [*model.weights, *model.biases]
                each = every[rng.integers(len(every))]
                each.requires_grad_(not each.requires_grad)
            changed = model.weights[rng.integers(len(model.weights))]
            how = rng.random()
            if how < 0.1:
                changed.data = model.values(*changed.shape)
            elif how < 0.2:
                with torch.no_grad():
                    changed.copy_(model.values(*changed.shape))
            elif how < 0.25:
                changed.data.copy_(model.values(*changed.shape))
            elif how < 0.3:
                turned = changed.data.mT.contiguous().mT
                changed.data = turned if changed.is_contiguous() else changed.data.contiguous()
            x = model.turned(model.values(*shape, model.k))
            if is_on and rng.random() < 0.4:
                x = x.to(half)
            x.requires_grad_(bool(rng.random() < 0.8))
            g = model.turned(model.values(*shape, model.n)).to(half if is_on else torch.float32)
            has_bias = bool(rng.random() < 0.9)
            with torch.set_grad_enabled(bool(rng.random() < 0.8)):
                with torch.autocast("cpu", half, enabled=is_on, cache_enabled=False):
                    y = model.theirs(x, has_bias)
                wanted = model.outcome(lambda *_, y=y: y, x, has_bias, g)
                for _ in range(rng.integers(1, 4)):  # a call is cached when it recurs
                    found = model.outcome(model.ours, x, has_bias, g)
                    for ours, theirs in zip(found, wanted, strict=True):
                        assert ours.dtype == theirs.dtype
                        assert torch.equal(ours, theirs)
        regions.close()
    for each in hits.values():
        assert len(each) / 16 < sum(each) < len(each)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.usefixtures("computing_gpu")
def test_weights_shared_in_a_region_and_between_threads(torch: Any, tw: Any, function: str) -> None:
    """All calls add to one gradient; other threads leave autocast's regions, or never enter one."""
    model = Model(torch, tw, np.random.default_rng(7), function, largest=1)
    leaves = [*model.weights, *model.biases]
    batches = [model.values(2, model.k) for _ in range(3)]

    def step(call: Any, is_on: bool) -> list[Any]:
        with torch.autocast("cpu", torch.bfloat16, enabled=is_on, cache_enabled=call == model.ours):
            with torch.no_grad():
                first = call(batches[0], True)
            results = [call(x, True) for x in batches]
        sums = torch.stack([each.float() for each in results]).sum()
        return [first, *results, *torch.autograd.grad(sums, leaves)]

    with torch.autograd.set_multithreading_enabled(False):
        wanted = [step(model.theirs, is_on) for is_on in (False, True)]
        with ThreadPoolExecutor(4) as pool:
            works = [(i % 3 > 0, pool.submit(step, model.ours, i % 3 > 0)) for i in range(24)]
            for is_on, work in works:
                assert all(map(torch.equal, work.result(), wanted[is_on]))


@pytest.mark.usefixtures("computing_gpu")
def test_the_bias_of_a_layer_under_autocast(torch: Any, tw: Any) -> None:
    """It and its gradient keep their dtype; outside of autocast, that dtype is still an error."""
    half = torch.bfloat16
    x, weight = torch.ones(257, 2), torch.nn.Parameter(torch.ones(3, 2, dtype=half))
    bias = torch.nn.Parameter(torch.full((3,), 1 / 256))
    for _ in range(4):
        with torch.autocast("cpu", half):
            y = tw.linear(x, weight, bias)
        (of_bias,) = torch.autograd.grad(y, bias, torch.ones_like(y))
        assert of_bias.dtype == torch.float32
        assert of_bias.tolist() == [257.0] * 3  # bfloat16 can't represent 257
        with pytest.raises(TypeError, match=r"bias torch\.float32"):
            tw.linear(x.to(half), weight, bias)
    assert tw.linear.__globals__["_layers"][id(weight)].cached is not None


@pytest.mark.usefixtures("computing_gpu")
def test_what_a_cached_layer_refuses(torch: Any, tw: Any) -> None:
    """What does not fit is refused as at the first call, and what has no derivative has none."""
    x, w = torch.randn(3, 2).requires_grad_(), torch.nn.Parameter(torch.randn(2, 2))
    for _ in range(3):
        tw.linear(x, w)
        tw.mlp(x, w, w, activation="relu")
    for wrong in (torch.randn(3, 4), x.double(), x.int()):
        with pytest.raises((TypeError, ValueError)):
            tw.linear(wrong, w)
        with pytest.raises((TypeError, ValueError)):
            tw.mlp(wrong, w, w, activation="relu")
    with pytest.raises(ValueError, match="activation is 'relo'"):
        tw.mlp(x, w, w, activation="relo")
    with pytest.raises(TypeError, match="None"):
        tw.linear(None, w)


@pytest.mark.usefixtures("computing_gpu")
def test_cached_layers_are_invariant_where_asked(torch: Any, tw: Any) -> None:
    x, w = torch.randn(3, 2), torch.randn(2, 2)
    for _ in range(3):
        tw.linear(x, w)
    layers = tw.linear.__globals__["_layers"]
    plain = layers[id(w)].cached
    assert plain is not None
    assert not plain.is_invariant
    tilewise.set_invariant(True)
    try:
        assert plain.addresses(False, (x, w)) is None
        for _ in range(3):
            tw.linear(x, w)
        assert layers[id(w)].cached.is_invariant
    finally:
        tilewise.set_invariant(False)
    repeat.forget()
    assert not layers


def test_layers_are_few(torch: Any, tw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = cache_module()
    monkeypatch.setattr(module, "LAYERS", 3)
    layers = module.LayerCaches()
    weights = [torch.zeros(1) for _ in range(7)]
    for each in weights:
        layers.of(each)
        assert len(layers) <= 3
    assert layers.of(weights[-1]) is layers.of(weights[-1])


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("function", "dtype"),
    [("linear", "float16"), ("mlp", "float16"), *((each, "float32") for each in FUNCTIONS)],
)
def test_cached_layers_on_a_gpu(torch: Any, tw: Any, function: str, dtype: str) -> None:
    """Their results and gradients, those of biases too, are PyTorch's in float64, call by call."""
    rng = np.random.default_rng(5)
    for turn in range(3):
        model = Model(torch, tw, rng, function, device="cuda", dtype=getattr(torch, dtype))
        shape = (2, 3) if turn else (5,)
        for _ in range(6):
            x, g = model.values(*shape, model.k).requires_grad_(), model.values(*shape, model.n)
            x, g = model.turned(x.detach()).requires_grad_(), model.turned(g)
            found = model.outcome(model.ours, x, True, g)
            wide = Model(torch, tw, rng, function, device="cuda", dtype=torch.float64)
            wide.weights = [torch.nn.Parameter(w.detach().double()) for w in model.weights]
            wide.biases = [torch.nn.Parameter(b.detach().double()) for b in model.biases]
            wanted = wide.outcome(
                wide.theirs, x.detach().double().requires_grad_(), True, g.double()
            )
            assert len(found) == len(wanted)
            for ours, theirs in zip(found, wanted, strict=True):
                assert torch.equal(ours.double(), theirs)
