"""Reads a script without running it: the values that its expressions surely have, and the scopes of its names."""

from __future__ import annotations

import ast
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_OPERATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_CONVERSIONS: Mapping[str, Callable[..., Any]] = {
    "dict": dict,
    "float": float,
    "int": int,
    "list": list,
    "os.path.join": os.path.join,
    "path.join": os.path.join,
    "Path": os.path.join,
    "pathlib.Path": os.path.join,
    "str": str,
    "tuple": tuple,
}
# Methods that change a list or a dict in place.
_CHANGING = (
    "append",
    "clear",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
)
# A name that stands for another and so on: a circle of them ends here.
_DEEPEST = 20
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that only the running script has.

    Attributes:
      code: the expression.
    """

    code: str


class Script:
    """The syntax of a script, with the scopes of its names.

    Attributes:
      imported: the dotted name of each name that a `from ... import` gives.

    Raises:
      SyntaxError, ValueError: if the text is no Python.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.imported = {
            name.asname or name.name: f"{node.module or ''}.{name.name}"
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        self._given: dict[Scope, dict[str, list[ast.expr | None]]] = {}
        for node in ast.walk(self.tree):
            for name, value in _bindings(node):
                self._given.setdefault(self.scope_of(node), {}).setdefault(name, []).append(value)
        # The functions that change what a name of an outer scope stands for: when they are called, nobody knows.
        self._changing: dict[str, set[Scope]] = {}
        for node in ast.walk(self.tree):
            if (changed := _changed(node)) is not None:
                self._note_change(changed, node, self.owner(changed, node))
            elif isinstance(node, ast.Global):
                for name in node.names:
                    self._note_change(name, node, self.tree)
            elif isinstance(node, ast.Nonlocal):
                for name in node.names:
                    self._note_change(name, node, self.owner(name, self.scope_of(node)))

    def _note_change(self, name: str, node: ast.AST, owner: Scope) -> None:
        self._given.setdefault(owner, {}).setdefault(name, []).append(None)
        if (scope := self.scope_of(node)) is not owner:
            self._changing.setdefault(name, set()).add(scope)

    def scope_of(self, node: ast.AST) -> Scope:
        """Returns the function that a node lies in, or the module."""
        while node in self._parents:
            node = self._parents[node]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return node
        return self.tree

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Returns the node that holds another one."""
        return self._parents.get(node)

    def given(self, name: str, node: ast.AST) -> ast.expr | None:
        """Returns the expression that a name stands for where a node uses it; None if there are several or none."""
        changed_elsewhere = self._changing.get(name, set()) - {self.scope_of(node)}
        if not changed_elsewhere and (before := self._set_right_before(name, node)) is not None:
            return before
        scope = self.owner(name, node)
        values = self._given.get(scope, {}).get(name, [None])
        is_argument = not isinstance(scope, ast.Module) and name in _arguments(scope)
        return values[0] if len(values) == 1 and not is_argument else None

    def owner(self, name: str, node: ast.AST) -> Scope:
        """Returns the scope whose name a node uses: the innermost one that sets the name, or the module."""
        scope = self.scope_of(node)
        while not isinstance(scope, ast.Module):
            if name in self._given.get(scope, {}) or name in _arguments(scope):
                return scope
            scope = self.scope_of(scope)
        return scope

    def _set_right_before(self, name: str, node: ast.AST) -> ast.expr | None:
        """Returns what a name was given before a statement in the same block, where nothing between may change it."""
        statement: ast.AST | None = node
        while statement is not None and not isinstance(statement, ast.stmt):
            statement = self._parents.get(statement)
        if statement is None or statement not in self._parents:
            return None
        blocks = (getattr(self._parents[statement], field, None) for field in ("body", "orelse", "finalbody"))
        block = next((block for block in blocks if isinstance(block, list) and statement in block), [])
        for earlier in reversed(block[: block.index(statement)] if block else []):
            values = [value for inner in ast.walk(earlier) for bound, value in _bindings(inner) if bound == name]
            values += [None for inner in ast.walk(earlier) if _changed(inner) == name]
            if values:
                return values[0] if len(values) == 1 and isinstance(earlier, ast.Assign | ast.AnnAssign) else None
        return None

    def called(self, node: ast.AST) -> str:
        """Returns the last part of the name that is called or inherited, such as `Sequence` of any module."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id, node.id).rpartition(".")[2]
        return node.attr if isinstance(node, ast.Attribute) else ""

    def code(self, node: ast.AST) -> str:
        """Returns the text of an expression as the script has it."""
        return ast.get_source_segment(self.text, node) or ast.unparse(node)

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Returns what an expression of constants is, or an `Unknown`."""
        unknown = Unknown(self.code(node))
        if depth > _DEEPEST:
            return unknown
        try:
            return self._value(node, depth)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return unknown

    def _value(self, node: ast.expr, depth: int) -> Any:
        """Returns the value. Raises LookupError, or what its parts raise, if it is not known."""

        def of(part: ast.expr) -> Any:
            value = self.value(part, depth + 1)
            if isinstance(value, Unknown):
                raise LookupError(value.code)
            return value

        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(map(of, node.elts)) if isinstance(node, ast.Tuple) else list(map(of, node.elts))
        if isinstance(node, ast.Dict):
            return {of(key): of(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None}
        if isinstance(node, ast.Name):
            given = self.given(node.id, node)
            return of(given) if given is not None else _raise(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -of(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            left, right = of(node.left), of(node.right)
            if isinstance(node.op, ast.Div) and isinstance(left, str):
                return os.path.join(left, right)
            return _OPERATIONS[type(node.op)](left, right)
        if isinstance(node, ast.Subscript):
            return of(node.value)[of(node.slice)]
        if isinstance(node, ast.JoinedStr) and all(isinstance(part, ast.Constant) for part in node.values):
            return "".join(of(part) for part in node.values)
        if isinstance(node, ast.Call) and (name := dotted(node.func)) in _CONVERSIONS:
            named = {word.arg: of(word.value) for word in node.keywords if word.arg is not None}
            return _CONVERSIONS[name](*map(of, node.args), **named)
        return _raise(type(node).__name__)

    def arguments(self, call: ast.Call, names: Sequence[str]) -> dict[str, Any]:
        """Returns the arguments of a call by their names, each a value or an `Unknown`.

        Args:
          names: those of the parameters, in their order.
        Raises:
          ValueError: if arguments are handed on by `*`, or by a `**` whose mapping is not known.
        """
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            raise ValueError("its arguments are handed on by `*`")
        values = {name: self.value(node) for name, node in zip(names, call.args, strict=False)}
        for word in call.keywords:
            if word.arg is not None:
                values[word.arg] = self.value(word.value)
                continue
            mapping = self.value(word.value)
            if not isinstance(mapping, dict):
                raise ValueError(f"`**{self.code(word.value)}` is only known when the script runs")
            values |= mapping
        return values


def _raise(what: str) -> Any:
    raise LookupError(what)


def dotted(node: ast.AST) -> str:
    """Returns the dotted name that an expression is, or ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def _arguments(scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    every = scope.args
    named = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
    return {argument.arg for argument in named if argument is not None}


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yields the names that a statement sets, each with the expression that it stands for, or None."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield from _pairs(node.target, node.value)
    elif isinstance(node, ast.NamedExpr):
        yield node.target.id, None
    elif isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor | ast.comprehension):
        yield from _pairs(node.target, None)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _pairs(node.optional_vars, None)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, None
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from ((name, None) for name in node.names)


def _changed(node: ast.AST) -> str | None:
    """Returns the name of the object of which a node sets or deletes a part, or which it changes by a method."""
    part: ast.expr
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
        part = node.func.value
    elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        part = node.value
    else:
        return None
    while isinstance(part, ast.Attribute | ast.Subscript):
        part = part.value
    return part.id if isinstance(part, ast.Name) else None


def _pairs(target: ast.AST, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        parts: Sequence[ast.expr | None] = [None] * len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            parts = value.elts
        for one, part in zip(target.elts, parts, strict=True):
            yield from _pairs(one, part)
    elif isinstance(target, ast.Starred):
        yield from _pairs(target.value, None)
