"""The arguments that a source gives to its templates of kernels.

They stand where host code launches a kernel, takes its address or instantiates it. What is named
there by a constant of the host function is replaced by its value, and what is named by a parameter
of a template around it by each argument that the source gives to that.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

from tilewise.compiler.source.kernels import KernelDeclaration
from tilewise.compiler.source.part import Files
from tilewise.compiler.source.scopes import visible
from tilewise.compiler.source.tree import Text, nodes

MOST = 256
"""The most instances of a kernel that are searched for."""
_DEEPEST = 5  # templates that instantiate one another
_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.floordiv, ast.Mod: operator.mod, ast.LShift: operator.lshift,
}  # fmt: skip
_ARITHMETIC = re.compile(r"[\d\s()+*/%<>&|-]+")


def instances(files: Files) -> dict[str, list[str]]:
    """Return the instances that the texts use, such as ``"k<64, float>"``, by the
    template's name.
    """
    finder = Finder(files)
    found: dict[str, list[str]] = {}
    for kernel in files.kernels:
        if kernel.template:
            names = [f"{kernel.name}<{given}>" for given in finder.given(kernel.base)]
            names += finder.deduced(kernel)
            if not names and all(each.default for each in kernel.template):
                names = [f"{kernel.name}<>"]
            found[kernel.name] = list(dict.fromkeys([*found.get(kernel.name, ()), *names]))
    return found


class Finder:
    """A search for the arguments of templates, and for the launches of kernels."""

    def __init__(self, files: Files) -> None:
        self.by_name: dict[str, list[tuple[Any, Text]]] = {}
        self.launches: dict[str, list[tuple[Any, Text]]] = {}
        for text in files.texts.values():
            for node in nodes(text.root):
                if node.type in ("template_function", "template_type"):
                    name = text.spelled(node.child_by_field_name("name") or node)
                    self.by_name.setdefault(name, []).append((node, text))
                elif node.type == "call_expression" and any(
                    child.type == "kernel_call_syntax" for child in node.children
                ):
                    name = text.spelled(node.child_by_field_name("function") or node)
                    self.launches.setdefault(name.rpartition("::")[2], []).append((node, text))

    def given(self, name: str, depth: int = 0) -> list[str]:
        """Return the arguments that a template of this name is given, each list as text."""
        found: dict[str, None] = {}
        for node, text in self.by_name.get(name, ()):
            listed = node.child_by_field_name("arguments")
            if listed is None or depth > _DEEPEST or len(found) >= MOST:
                continue
            arguments = [c for c in listed.named_children if c.type != "comment"]
            for each in islice(self._resolved(arguments, node, text, depth), MOST):
                found[", ".join(each)] = None
        return list(found)

    def _resolved(
        self, arguments: Sequence[Any], node: Any, text: Text, depth: int
    ) -> Iterator[tuple[str, ...]]:
        """Yield the arguments with values for names, for each instance of the templates."""
        for around in self.around(node, text, depth):
            values = []
            for argument in arguments:
                value = self.value(argument, node, text, around)
                if value is None:
                    break
                values.append(value)
            else:
                yield tuple(values)

    def around(self, node: Any, text: Text, depth: int) -> Iterator[Mapping[str, str]]:
        """Yield what the parameters of the templates around a place may be."""
        every: list[list[dict[str, str]]] = []
        while (node := node.parent) is not None:
            if node.type != "template_declaration":
                continue
            names = _parameters_of(node, text)
            if not names:
                continue
            options = []
            for name in _names_of(node, text):
                for given in self.given(name, depth + 1):
                    values = split_list(given)
                    if len(values) <= len(names):
                        options.append(dict(zip(names, values, strict=False)))
            every.append(options or [dict.fromkeys(names, "")])
        for chosen in islice(product(*every), MOST):
            yield {name: value for each in chosen for name, value in each.items()}

    def value(
        self, node: Any, place: Any, text: Text, around: Mapping[str, str], depth: int = 0
    ) -> str | None:
        """Return an expression or type with values for its names; None if one is not known."""
        parts: list[str] = []
        tokens = text.between(node.start_byte, node.end_byte)
        end = None
        for token in tokens:
            word = token.text.decode(errors="replace")
            gap = " " * (end is not None and end < token.start)
            end = token.end
            if token.is_word and word in around:
                if not around[word]:
                    return None
                word = around[word]
            elif token.is_word and depth < _DEEPEST:
                constant = _constant(word, place, text)
                if constant is not None:
                    value = self.value(constant, constant, text, around, depth + 1)
                    if value is None:
                        return None
                    word = value if re.fullmatch(r"\w+", value) else f"({value})"
            parts.append(gap + word)
        return _computed("".join(parts))

    def instance(self, function: Any, text: Text, around: Mapping[str, str]) -> str:
        """Return the name of a called function; known template arguments are values."""
        inner = function
        while inner.type == "qualified_identifier":
            inner = inner.child_by_field_name("name")
        listed = inner.child_by_field_name("arguments")
        if listed is None:
            return text.spelled(function)
        name = text.spelled(function).partition("<")[0]
        arguments = [c for c in listed.named_children if c.type != "comment"]
        values = [self.value(each, function, text, around) for each in arguments]
        said = (text.spelled(each) for each in arguments)
        known = (value or word for value, word in zip(values, said, strict=True))
        return f"{name}<{', '.join(known)}>"

    def deduced(self, kernel: KernelDeclaration) -> list[str]:
        """Return the instances of launches whose template arguments follow from the
        call's types.
        """
        names = [each.name for each in kernel.template]
        if any(each.kind not in ("typename", "class") for each in kernel.template):
            return []
        found = []
        for node, text in self.launches.get(kernel.base, ()):
            listed = node.child_by_field_name("arguments")
            if listed is None or text.spelled(node.child_by_field_name("function")).endswith(">"):
                continue
            arguments = [c for c in listed.named_children if c.type != "comment"]
            for around in self.around(node, text, 0):
                known: dict[str, str] = {}
                for parameter, argument in zip(kernel.parameters, arguments, strict=False):
                    kind = self._type(argument, node, text, around)
                    pattern = parameter.type.replace("const", " ").replace("__restrict__", " ")
                    pattern = "".join(pattern.split())
                    for name in names:
                        if kind and pattern in (name, f"{name}*", f"{name}&"):
                            stars = pattern.count("*")
                            if kind.count("*") >= stars:
                                known.setdefault(name, kind[: len(kind) - stars] if stars else kind)
                if len(known) == len(names):
                    found.append(f"{kernel.name}<{', '.join(known[name] for name in names)}>")
        return list(dict.fromkeys(found))

    def _type(self, node: Any, place: Any, text: Text, around: Mapping[str, str]) -> str:
        """Return the declared type of a variable; empty if it is not known."""
        if node.type == "cast_expression":
            kind = node.child_by_field_name("type")
            return _plain(self.value(kind, place, text, around) or "")
        word = text.spelled(node)
        if not re.fullmatch(r"\w+", word):
            return ""
        for declaration in visible(place, ("declaration", "parameter_declaration")):
            for declarator in declaration.children_by_field_name("declarator"):
                stars = 0
                inner = declarator
                while inner is not None and inner.type in (
                    "init_declarator", "pointer_declarator", "array_declarator",
                ):  # fmt: skip
                    stars += inner.type != "init_declarator"
                    inner = inner.child_by_field_name("declarator")
                kind = declaration.child_by_field_name("type")
                if inner is not None and kind is not None and text.spelled(inner) == word:
                    return _plain(self.value(kind, place, text, around) or "") + "*" * stars
        return ""


def _plain(kind: str) -> str:
    return "" if kind == "auto" else re.sub(r"\bconst\b|\s+(?=\*)", "", kind).strip()


def _parameters_of(template: Any, text: Text) -> list[str]:
    """Return the names of a template's parameters."""
    listed = template.child_by_field_name("parameters")
    found = []
    for each in () if listed is None else listed.named_children:
        tokens = text.between(each.start_byte, each.end_byte)
        equals = next((at for at, token in enumerate(tokens) if token.text == b"="), len(tokens))
        words = [token for token in tokens[:equals] if token.is_word]
        if words:
            found.append(words[-1].text.decode())
    return found


def _names_of(template: Any, text: Text) -> Iterator[str]:
    """Yield the name of a template, and of the class whose member it is."""
    inner = template.named_children[-1]
    name = inner.child_by_field_name("name")
    if name is not None:
        yield text.spelled(name.child_by_field_name("name") or name)
    declarator = inner.child_by_field_name("declarator")
    while declarator is not None and declarator.child_by_field_name("declarator") is not None:
        declarator = declarator.child_by_field_name("declarator")
    while declarator is not None and declarator.type == "qualified_identifier":
        scope = declarator.child_by_field_name("scope")
        if scope is not None and scope.type == "template_type":
            yield text.spelled(scope.child_by_field_name("name") or scope)
        declarator = declarator.child_by_field_name("name")
    if declarator is not None:
        yield text.spelled(declarator)


def _constant(word: str, place: Any, text: Text) -> Any:
    """Return the initial value of a constant in the functions around a place."""
    for declaration in visible(place, ("declaration",)):
        words = {t.text for t in text.between(declaration.start_byte, declaration.end_byte)}
        if declaration.parent.type in ("translation_unit", "declaration_list"):
            continue  # NVRTC knows it too
        if word.encode() not in words or not words & {b"const", b"constexpr", b"enum"}:
            continue
        for declarator in declaration.children_by_field_name("declarator"):
            name = declarator.child_by_field_name("declarator")
            if name is not None and text.spelled(name) == word:
                return declarator.child_by_field_name("value")
    return None


def _computed(value: str) -> str:
    """Return the value of an expression of numbers; another one as it is, in brackets if needed."""
    if _ARITHMETIC.fullmatch(value) and re.search(r"\d\s*[^\d\s)]", value) and len(value) < 200:
        try:
            return str(_evaluated(ast.parse(value.strip(), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError, KeyError, RecursionError):
            pass
    depth = 0
    for letter in value:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == ">" and depth == 0 and "<" not in value:
            return f"({value})"
    return value


def _evaluated(node: Any) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluated(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _evaluated(node.left), _evaluated(node.right)
        if isinstance(node.op, ast.Div | ast.Mod) and (left < 0 or right < 0):
            raise ValueError("C++ rounds otherwise")
        if isinstance(node.op, ast.LShift) and not 0 <= right < 64:
            raise ValueError("a shift that C++ does not define")
        if type(node.op) in _OPERATIONS:
            return int(_OPERATIONS[type(node.op)](left, right))
    raise ValueError("no arithmetic of whole numbers")


def split_list(listed: str) -> list[str]:
    """Split a list, as of arguments, at the commas that no bracket holds."""
    found, depth = [""], 0
    for letter in listed:
        depth += (letter in "(<[") - (letter in ")>]")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [each.strip() for each in found if each.strip()]
