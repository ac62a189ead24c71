"""Recognize modules whose ``forward`` is certain to be a multilayer perceptron.

This module reads the source of ``forward``, and calls nothing. The source counts only if it
compiles to the code that the function has. The objects that it calls are looked up and compared by
identity, not by name.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import torch

from tilewise.torch.activations import activation_of

Module = Any
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Pattern(NamedTuple):
    """An MLP whose linear layers are a module's children.

    Attributes
    ----------
    first : tuple of str
        The names of the layers before the activation: one, or gate and up.
    activation : str
        The name of the activation in :data:`tilewise.torch.activations.ACTIVATIONS`.
    module : str
        The name of the child that is the activation; empty if it is a function.
    down : str
        The name of the last layer.
    function : tuple of str
        The global name of the function that is the activation, in its parts, such as ``F`` and
        ``gelu``; empty if it is a child.
    """

    first: tuple[str, ...]
    activation: str
    module: str
    down: str
    function: tuple[str, ...] = ()

    def __str__(self) -> str:
        gated = f"{self.activation}({self.first[0]}) * {self.first[-1]}"
        inner = gated if len(self.first) == 2 else f"{self.activation}({self.first[0]})"
        return f"{self.down}({inner})"


def has_hooks(module: Module) -> bool:
    """Return whether calling a module does more than its ``forward``."""
    return any(getattr(module, hooks, None) for hooks in _HOOKS)


def is_called_as_written(module: Module) -> bool:
    """Return whether calling a module calls its class's ``forward``, and besides at most hooks."""
    kind, plain = type(module), torch.nn.Module
    return (
        "forward" not in vars(module)
        and kind.__call__ is plain.__call__
        and kind._call_impl is plain._call_impl
    )


def has_global_hooks() -> bool:
    """Return whether PyTorch calls hooks at each call of any module, as profilers have them."""
    return bool(torch.nn.modules.module._has_any_global_hook())


def pattern_of(module: Module, kind: Any = None) -> Pattern | None:
    """Return the MLP that a module's ``forward`` computes; None if that is not certain.

    Hooks of the children, which come and go, are not looked at.

    Parameters
    ----------
    module : torch.nn.Module
    kind : type, optional
        The class whose ``forward`` is meant; by default the module's own.
    """
    kind, plain = kind or type(module), torch.nn.Module
    # A module of TorchScript has a class without a forward.
    forward = getattr(kind, "forward", None)
    if not (isinstance(forward, FunctionType) and is_called_as_written(module)):
        return None
    if (kind.__getattr__, kind.__getattribute__) != (plain.__getattr__, plain.__getattribute__):
        return None
    tree = _source(forward)
    if tree is None:
        return None
    try:
        return _matched(_Reader(module, forward).result(tree))
    except _Unknown:
        return None


def names_activation(pattern: Pattern, space: dict[str, Any]) -> bool:
    """Return whether a pattern's function is still its activation among the globals ``space``."""
    function = _looked_up(pattern.function, space)
    return any(function is x and pattern.activation == name for x, _, name in _NAMED)


class _Unknown(Exception):
    """The error that an expression is none of those that a pattern can have."""


def _source(forward: FunctionType) -> ast.FunctionDef | None:
    """Return the syntax tree of a method with one argument; None if it may be another method's."""
    code = forward.__code__
    try:
        text = "".join(inspect.findsource(forward)[0])
        tree, compiled = _parsed(text, code.co_filename)
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not any(_is_same(x, code) for x in compiled if x.co_firstlineno == code.co_firstlineno):
        return None
    if forward.__defaults__ or forward.__kwdefaults__ or forward.__closure__:
        return None
    for function in ast.walk(tree):
        # If a function has decorators, its code begins at the first of them.
        if isinstance(function, ast.FunctionDef) and function.lineno == code.co_firstlineno:
            given = function.args
            others = (given.posonlyargs, given.kwonlyargs, given.vararg, given.kwarg)
            is_plain = function.name == code.co_name and not function.decorator_list
            return function if is_plain and len(given.args) == 2 and not any(others) else None
    return None


@lru_cache(maxsize=16)
def _parsed(text: str, name: str) -> tuple[ast.Module, tuple[CodeType, ...]]:
    """Return a file's syntax tree, and the code of all functions and classes in it.

    The whole file is compiled, because the way that a method's calls compile depends on its
    imports.
    """

    def inside(code: CodeType) -> Iterator[CodeType]:
        for x in code.co_consts:
            if isinstance(x, CodeType):
                yield x
                yield from inside(x)

    compiled = compile(text, name, "exec", dont_inherit=True)
    return ast.parse(text), tuple(inside(compiled))


def _is_same(x: CodeType, y: CodeType) -> bool:
    of = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_consts",
          "co_flags", "co_qualname")  # fmt: skip
    return all(getattr(x, name) == getattr(y, name) for name in of)


class _Reader:
    """A reader of a method's expressions as nested tuples, in which ``"x"`` is the argument."""

    def __init__(self, module: Module, forward: FunctionType) -> None:
        self.module, self.globals = module, forward.__globals__
        self.values: dict[str, Any] = {}
        self.self = ""

    def result(self, tree: ast.FunctionDef) -> Any:
        """Return what the method returns, if it only assigns values to names and returns one."""
        self.self, argument = (x.arg for x in tree.args.args)
        self.values[argument] = "x"
        for statement in tree.body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                return self.value(statement.value)
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if not isinstance(target, ast.Name) or target.id == self.self:
                raise _Unknown
            if len(statement.targets) != 1:  # type: ignore[attr-defined]
                raise _Unknown
            self.values[target.id] = self.value(statement.value)  # type: ignore[attr-defined]
        raise _Unknown

    def value(self, node: ast.expr) -> Any:
        """Return an expression: ``"x"``, or a tuple of the operation's name and its operands."""
        if isinstance(node, ast.Name) and node.id in self.values:
            return self.values[node.id]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return "multiply", self.value(node.left), self.value(node.right)
        if not (isinstance(node, ast.Call) and len(node.args) == 1):
            raise _Unknown
        given, called = self.value(node.args[0]), node.func
        if (
            isinstance(called, ast.Attribute)
            and isinstance(called.value, ast.Name)
            and called.value.id == self.self
            and not node.keywords
        ):
            return self._of_child(called.attr, given)
        named = tuple((x.arg, ast.literal_eval(x.value)) for x in node.keywords
                      if isinstance(x.value, ast.Constant))  # fmt: skip
        names = self._names(called)
        function = _looked_up(names, self.globals)
        for known, options, activation in _NAMED:
            if function is known and named == options and len(named) == len(node.keywords):
                return "activation", (activation, "", names), given
        raise _Unknown

    def _of_child(self, name: str, given: Any) -> Any:
        child = self.module._modules.get(name)
        if child is None or name in vars(self.module) or hasattr(type(self.module), name):
            raise _Unknown
        if isinstance(child, torch.nn.Linear):
            return "linear", name, given
        activation = activation_of(child)
        if activation is None or not is_called_as_written(child):
            raise _Unknown
        return "activation", (activation, name, ()), given

    def _names(self, node: ast.expr) -> tuple[str, ...]:
        """Return the parts of a global name, or of a dotted one; no parts if it is neither."""
        if isinstance(node, ast.Name) and node.id not in self.values:
            return (node.id,)
        if isinstance(node, ast.Attribute) and (parts := self._names(node.value)):
            return (*parts, node.attr)
        return ()


def _looked_up(names: tuple[str, ...], space: dict[str, Any]) -> Any:
    """Return the object that a global name, or a dotted name in modules, refers to."""
    found = space.get(names[0]) if names else None
    for name in names[1:]:
        found = getattr(found, name, None) if inspect.ismodule(found) else None
    return found


_NAMED: tuple[tuple[Callable[..., Any], tuple[Any, ...], str], ...] = (
    (torch.nn.functional.gelu, (), "gelu"),
    (torch.nn.functional.gelu, (("approximate", "none"),), "gelu"),
    (torch.nn.functional.gelu, (("approximate", "tanh"),), "gelu_tanh"),
    (torch.nn.functional.leaky_relu, (), "leaky_relu"),
    (torch.nn.functional.relu, (), "relu"),
    (torch.relu, (), "relu"),
    (torch.nn.functional.sigmoid, (), "sigmoid"),
    (torch.sigmoid, (), "sigmoid"),
    (torch.nn.functional.silu, (), "silu"),
    (torch.nn.functional.softplus, (), "softplus"),
    (torch.nn.functional.tanh, (), "tanh"),
    (torch.tanh, (), "tanh"),
)


def _matched(value: Any) -> Pattern | None:
    """Return the MLP that an expression computes; None if it is not one."""
    if value[0] != "linear" or not isinstance(value[2], tuple):
        return None
    _, down, hidden = value
    ways = [(hidden, None)]
    if hidden[0] == "multiply":
        ways = [(hidden[1], hidden[2]), (hidden[2], hidden[1])]
    for activated, up in ways:
        if not (isinstance(activated, tuple) and activated[0] == "activation"):
            continue
        _, (activation, module, function), gate = activated
        layers = [gate] if up is None else [gate, up]
        if all(isinstance(x, tuple) and x[0] == "linear" and x[2] == "x" for x in layers):
            names = tuple(x[1] for x in layers)
            if len({*names, down}) == len(names) + 1:
                return Pattern(names, activation, module, down, function)
    return None
