"""Edits a user's source text: gives a call an argument, puts a call behind it, moves it. Nothing is run or written.

A call is found by its end, which Python keeps for each call that it compiles (`code.co_positions`). Over 400 lines:
making the edits and showing the statements that they change parse the same text.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from unstall.profiles.data import ADAPTERS
from unstall.profiles.remedies.remedy import Edit
from unstall.profiles.stages.places import Place

# Calls that are put behind one call stand in this order.
_ORDER = (".cache", ".shuffle", ".repeat", ".prefetch", ".with_options")
# What the text of an edit may name, and the statement that imports it.
_IMPORTS = {
    "copy": "import copy",
    "gc": "import gc",
    "keras": "import keras",
    "np": "import numpy as np",
    "os": "import os",
    "tf": "import tensorflow as tf",
    "torch": "import torch",
    "PIL": "import PIL.Image",
}
# Modules that are imported from a package, by the name that the package has for them.
_MODULES_FROM = ("tensorflow.keras",)
# Arguments of `fit` that are data, or say how arrays are cut into batches.
_FED = ("x", "y", "sample_weight", "batch_size", "shuffle")
# Attributes of what a library's call returns that what stands behind the call has not.
_OF_RESULTS = ("class_names", "file_paths")


class TooInvolved(Exception):
    """The code cannot be edited by machine; the message says why."""


def edited(source: str, edits: Iterable[Edit]) -> str:
    """Returns the source text with all edits made.

    Args:
      source: of the file that all places are in.
      edits: of one file; equal ones count once. Of two that give a call the same argument, the larger number counts.
    Raises:
      TooInvolved: if a call is not found, or is made by `*` or in another way that leaves open what it is given.
    """
    tree = _parsed(source)
    text = _Text(source)
    changes: list[tuple[int, int, str]] = []
    before: dict[int, list[str]] = {}
    behind: dict[Place, list[str]] = {}
    edits = _without_rivals(edits)
    for edit in edits:
        call, statement = _find(tree, edit.place)
        if edit.kind == "behind":
            behind.setdefault(edit.place, []).append(edit.text)
        elif edit.kind == "option":
            behind.setdefault(edit.place, []).append(f".with_options({_options_name(tree)})")
        elif edit.kind == "remove":
            changes.append(_removal(text, call, statement))
        elif edit.kind == "feed":
            changes += _feed(text, call, edit.text)
        elif edit.kind == "before":
            first, _ = text.span(statement)
            before.setdefault(first, []).append(f"{edit.text}\n{' ' * statement.col_offset}")
    changes += [_definition(tree, text, edit) for edit in edits if edit.kind == "define"]
    for place in dict.fromkeys(edit.place for edit in edits if edit.kind == "argument"):
        given = [edit.text for edit in edits if edit.kind == "argument" and edit.place == place]
        changes += _arguments(text, _find(tree, place)[0], given)
    changes += [(first, first, "".join(lines)) for first, lines in before.items()]
    changes += _options(tree, text, [edit for edit in edits if edit.kind == "option"])
    for place, calls in behind.items():
        call, _ = _find(tree, place)
        _, end = text.span(call)
        ordered = sorted(dict.fromkeys(calls), key=_rank)
        changes.append((end, end, "".join(ordered)))
    for edit in edits:
        if edit.kind == "swap" and edit.other is not None:
            if edit.other.file != edit.place.file:
                raise TooInvolved(f"{edit.place} and {edit.other} are in different files")
            found = [_find(tree, place) for place in (edit.place, edit.other)]
            _check_adjacent(tree, *found)
            changes = _swapped(text, [call for call, _ in found], changes)
    changes += _imports(tree, text, edits)
    new = text.replaced(changes)
    try:
        compile(new, "edited", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise TooInvolved(f"the edits would not give valid code: {error}") from error
    return new


def variable_given(source: str, place: Place, name: str) -> str | None:
    """Returns the variable that a call of a source text gets as its first argument, or by this name, if that is one."""
    try:
        call, _ = _find(_parsed(source), place)
    except TooInvolved:
        return None
    given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == name)]
    return given[0].id if given and isinstance(given[0], ast.Name) else None


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise TooInvolved(f"the source cannot be parsed: {error}") from error


def _without_rivals(edits: Iterable[Edit]) -> list[Edit]:
    """Returns the edits, each once; of those that set the same argument or option, the one with the largest number."""
    chosen: dict[tuple[Place, str, str], Edit] = {}
    for edit in edits:
        name = edit.text.partition("=")[0].strip() if edit.kind in ("argument", "option") else edit.text
        key = (edit.place, edit.kind, name)
        if key not in chosen or _number(edit) > _number(chosen[key]):
            chosen[key] = edit
    return list(chosen.values())


def _number(edit: Edit) -> float:
    value = edit.text.partition("=")[2].strip()
    return float(value) if value.isdecimal() else -1.0


def source_of(path: Path) -> str:
    """Returns the text of a file of Python with its own line ends.

    Raises:
      OSError, UnicodeDecodeError: if the file cannot be read, or is not UTF-8.
    """
    return path.read_bytes().decode("utf-8")


def name_from_here(file: Path) -> str:
    """Returns the name that a file has in a diff, if the diff is to be applied in the current folder.

    Raises:
      TooInvolved: if the file lies outside of the current folder.
    """
    name = Path(os.path.relpath(file))
    if name.parts[0] == os.pardir:
        raise TooInvolved(f"{file.name} lies outside of this folder, where no diff reaches. Run from its folder")
    return name.as_posix()


def diff(before: str, after: str, name: str) -> str:
    """Returns a unified diff that `patch -p1` and `git apply` read."""
    end = "\t" if " " in name else ""  # a name with spaces ends with a tab
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}{end}", f"b/{name}{end}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def reads_as(edits: Sequence[Edit]) -> str | None:
    """Returns the user's statements as they read once the edits are made; None where no code can be read or edited.

    Each statement is whole, and stands below a comment with the lines whose place it takes: "# train.py:9-12".
    """
    parts: list[str] = []
    for file in dict.fromkeys(edit.place.file for edit in edits):
        try:
            source = source_of(Path(file))
            new = edited(source, [edit for edit in edits if edit.place.file == file])
        except (OSError, UnicodeDecodeError, TooInvolved):
            return None
        for first, last, text in _changed(source, new):
            parts.append(f"# {Path(file).name}:{first}{f'-{last}' if last > first else ''}\n{text}")
    return "".join(parts).rstrip("\n") or None


def gives_elements_only(place: Place) -> bool:
    """Whether the code reads nothing of what a library's call gives but its elements: no part, no attribute."""
    try:
        tree = ast.parse(source_of(Path(place.file)))
        _, statement = _find(tree, place)
    except (OSError, SyntaxError, ValueError, TooInvolved):
        return False
    if isinstance(statement, ast.Assign) and not all(isinstance(target, ast.Name) for target in statement.targets):
        return False
    return not any(isinstance(node, ast.Attribute) and node.attr in _OF_RESULTS for node in ast.walk(tree))


def passed(place: Place, arguments: Iterable[str]) -> dict[str, bool]:
    """Returns which of these arguments a call in the user's code passes, and whether it passes a variable."""
    call = _call_at(place)
    if call is None:
        return {}
    given = {argument: _given(call, argument) for argument in arguments}
    return {argument: isinstance(code, ast.Name) for argument, code in given.items() if code is not None}


def may_pass_more(place: Place) -> bool:
    """Whether a call in the user's code has **, which may pass any argument."""
    call = _call_at(place)
    return call is not None and _unpacked(call) is not None


def calls(place: Place, name: str) -> bool:
    """Whether what is called there in the user's code has this name, with or without the module's."""
    call = _call_at(place)
    return call is not None and _last_name(call.func) == name


def reads_attribute(place: Place, name: str, *, likely: str) -> bool:
    """Whether the file reads an attribute of what a call makes, for more than its length; also if that is not known.

    Args:
      likely: what is made has the name that it is assigned to, or one that contains this.
    """
    try:
        tree = _parsed(source_of(Path(place.file)))
        call, statement = _find(tree, place)
    except (OSError, SyntaxError, ValueError, TooInvolved):
        return True
    is_assigned = isinstance(statement, ast.Assign) and statement.value is call
    targets = {_last_name(target) for target in getattr(statement, "targets", ()) if is_assigned}
    lengths = {
        id(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _last_name(node.func) == "len"
        for argument in node.args
    }
    owners = (
        _last_name(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == name and id(node) not in lengths
    )
    return any(owner in targets or likely in owner.lower() for owner in owners)


def _last_name(node: ast.expr) -> str:
    return getattr(node, "attr", "") or getattr(node, "id", "")


def _call_at(place: Place) -> ast.Call | None:
    """Returns the call at a place in the user's code; None where it is not found."""
    try:
        call, _ = _find(_parsed(source_of(Path(place.file))), place)
    except (OSError, SyntaxError, ValueError, TooInvolved):
        return None
    return call


def _lines(source: str) -> list[str]:
    """Returns the lines as Python counts them: a form feed ends none."""
    return re.findall(r"[^\n]*\n|[^\n]+", source)


def _changed(before: str, after: str) -> Iterator[tuple[int, int, str]]:
    """Yields (first line, last line, text that takes their place) of the statements of a text that differ in another.

    What is new comes with the statement next to it, and so does what takes the place of a statement that is gone.
    """
    old, new = _lines(before), _lines(after)
    spans = _spans(_parsed(before))
    found: list[tuple[int, int, int, int]] = []
    for tag, *hunk in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        begin, end, new_begin, new_end = hunk
        first, last = _widened(spans, begin, end, is_gone=new_begin == new_end)
        new_begin, new_end = new_begin - (begin - first), new_end + (last - end)
        if found and first < found[-1][1]:
            first, _, new_begin, _ = found.pop()
        found.append((first, last, new_begin, new_end))
    for first, last, new_begin, new_end in found:
        text = "".join(f"{line.rstrip()}\n" for line in new[new_begin:new_end])
        yield first + 1, last, text


def _spans(tree: ast.Module) -> list[tuple[int, int]]:
    """Returns the lines of each statement, from 0 to one behind the last; of one with a body, those of its head."""
    spans = []
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.stmt)):
        decorators = getattr(node, "decorator_list", ())
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        body = getattr(node, "body", None) or getattr(node, "cases", None)
        last = node.end_lineno or node.lineno
        if body:
            starts = ast.walk(body[0])
            last = max(node.lineno, min(line for part in starts if (line := getattr(part, "lineno", None))) - 1)
        spans.append((first - 1, last))
    return sorted(spans)


def _widened(spans: Sequence[tuple[int, int]], begin: int, end: int, *, is_gone: bool) -> tuple[int, int]:
    """Returns the lines of the statements that lines belong to; of those next to them, where they hold none."""
    first, last = begin, end
    touched = [span for span in spans if span[0] < end and begin < span[1]]
    if begin == end:  # new lines: the statement that follows at once, else the one that ended before
        touched = [span for span in spans if span[0] <= begin < span[1]] or _before(spans, begin)
    elif is_gone:
        touched += _before(spans, begin) or [span for span in spans if span[0] >= end][:1]
    for span in touched:
        first, last = min(first, span[0]), max(last, span[1])
    return first, last


def _before(spans: Sequence[tuple[int, int]], line: int) -> list[tuple[int, int]]:
    """Returns the statement that ends last before a line, if there is one."""
    return sorted((span for span in spans if span[1] <= line), key=lambda span: span[1])[-1:]


class _Text:
    """A source text by (line, column in bytes), as `ast` counts."""

    def __init__(self, source: str) -> None:
        self.bytes = source.encode()
        lengths = [len(line.encode()) for line in _lines(source)]
        self._starts = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
        self._line_end = "\r\n" if "\r\n" in source else "\n"

    def at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr) -> str:
        return self.of_span(self.span(node))

    def of_span(self, span: tuple[int, int], changes: Iterable[tuple[int, int, str]] = ()) -> str:
        """Returns a part of the text with changes inside the part made."""
        begin, end = span
        new = self.bytes[begin:end]
        for first, last, text in sorted(changes, key=lambda change: change[:2], reverse=True):
            new = new[: first - begin] + text.replace("\n", self._line_end).encode() + new[last - begin :]
        return new.decode()

    def replaced(self, changes: Iterable[tuple[int, int, str]]) -> str:
        return self.of_span((0, len(self.bytes)), changes)


def _find(tree: ast.Module, place: Place) -> tuple[ast.Call, ast.stmt]:
    """Returns the call that ends at a place, and the statement that it is in."""
    for statement in (node for node in ast.walk(tree) if isinstance(node, ast.stmt)):
        if any(
            isinstance(inner, ast.stmt) and _holds(inner, place)
            for inner in ast.walk(statement)
            if inner is not statement
        ):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and (node.end_lineno, node.end_col_offset) == (
                place.end_line,
                place.end_column,
            ):
                return node, statement
    raise TooInvolved(f"no call ends in line {place.end_line}, column {place.end_column}")


def _holds(statement: ast.stmt, place: Place) -> bool:
    assert statement.end_lineno is not None
    return statement.lineno <= place.end_line <= statement.end_lineno


def _definition(tree: ast.Module, text: _Text, edit: Edit) -> tuple[int, int, str]:
    """Returns the change that defines a class or function of the module, in front of all that a call is in."""
    name = next(node.name for node in ast.parse(edit.text).body if isinstance(node, (ast.ClassDef, ast.FunctionDef)))
    taken = [node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    if name in taken:
        raise TooInvolved(f"the file has a `{name}` of its own")
    around = next(node for node in tree.body if _holds(node, edit.place))
    first = min([around.lineno, *(one.lineno for one in getattr(around, "decorator_list", ()))])
    at = text.at(first, 0)
    return at, at, f"{edit.text}\n\n\n"


def _arguments(text: _Text, call: ast.Call, arguments: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yields the changes that give a call arguments, such as "num_workers=4", or other values of them.

    "{dataset}" in an argument stands for the code of that argument of the call. What is added to a call with `**given`
    goes in there, since that may pass the argument already: `**{**given, "num_workers": 4}`.
    """
    unpacked = _unpacked(call)
    if sum(keyword.arg is None for keyword in call.keywords) > 1:
        raise TooInvolved(f"line {call.lineno} has several ** in its arguments")
    if any(isinstance(given, ast.Starred) for given in call.args):
        raise TooInvolved(f"line {call.lineno} has * in its arguments")
    further = []
    for argument in arguments:
        name, _, value = argument.partition("=")
        value = re.sub(r"\{(\w+)\}", lambda found: _code_of(text, call, found[1]), value)
        given = _given(call, name)
        if given is None:
            further.append(f"{name}={value}")
        else:
            yield (*text.span(given), value)
    if not further:
        return
    if unpacked is not None:
        pairs = ", ".join(f'"{name}": {value}' for name, _, value in (one.partition("=") for one in further))
        code = text.of(unpacked)
        if not isinstance(unpacked, (ast.Name, ast.Attribute, ast.Call, ast.Dict)):
            code = f"({code})"
        yield (*text.span(unpacked), f"{{**{code}, {pairs}}}")
        return
    added = ", ".join(further)
    close = text.span(call)[1] - 1
    ends = [text.span(part)[1] for part in (*call.args, *(keyword.value for keyword in call.keywords))]
    last = max(ends, default=text.bytes.index(b"(", text.span(call.func)[1]) + 1)
    if last > close:
        raise TooInvolved(f"line {call.lineno} has a generator as its argument")
    # After the last argument only blanks, a comma, closing brackets and comments can stand.
    rest = re.sub(rb"#[^\n]*", lambda comment: b" " * len(comment[0]), text.bytes[last:close]).rstrip()
    at = last + len(rest)
    if rest.endswith(b","):
        yield at, at, f" {added},"
    else:
        yield at, at, f", {added}" if ends else added


def _code_of(text: _Text, call: ast.Call, name: str) -> str:
    given = _given(call, name)
    if given is None:
        raise TooInvolved(f"line {call.lineno} does not say what `{name}` is")
    return text.of(given)


def _unpacked(call: ast.Call) -> ast.expr | None:
    """Returns what the last ** of a call unpacks, which may hold any argument that it does not pass by name."""
    return next((keyword.value for keyword in reversed(call.keywords) if keyword.arg is None), None)


def _given(call: ast.Call, name: str) -> ast.expr | None:
    """Returns the argument of a name that a call has, by its name or by its position."""
    by_name = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    positions = (one.argument_positions.get((called, name)) for one in ADAPTERS)
    position = next((at for at in positions if at is not None), len(call.args))
    return call.args[position] if by_name is None and position < len(call.args) else by_name


def _removal(text: _Text, call: ast.Call, statement: ast.stmt) -> tuple[int, int, str]:
    """Returns the change that leaves out a method's call: `data.shuffle(9)` becomes `data`."""
    if not isinstance(call.func, ast.Attribute):
        raise TooInvolved(f"line {call.lineno} is no call of a method")
    inner = call.func.value
    alone = (
        isinstance(statement, ast.Assign)
        and statement.value is call
        and isinstance(inner, ast.Name)
        and [isinstance(target, ast.Name) and target.id == inner.id for target in statement.targets] == [True]
    )
    begin, end = text.at(statement.lineno, 0), text.span(statement)[1]
    rest = text.bytes.find(b"\n", end)
    line_end = len(text.bytes) if rest < 0 else rest + 1
    before, behind = text.bytes[begin : text.span(statement)[0]], text.bytes[end:line_end].strip()
    if alone and not before.strip() and (not behind or behind.startswith(b"#")):
        return begin, line_end, ""  # `data = data.shuffle(9)`: the statement goes, with its line
    _, begin = text.span(inner)
    return begin, text.span(call)[1], ""


def _feed(text: _Text, call: ast.Call, expression: str) -> list[tuple[int, int, str]]:
    """Returns the changes that give `fit` an expression of its data in the place of its data.

    Raises:
      TooInvolved: if the arguments of the call do not say what the expression needs.
    """
    if len(call.args) > 2 or any(isinstance(argument, ast.Starred) for argument in call.args):
        raise TooInvolved(f"line {call.lineno} gives `fit` more than its data by position")
    if any(keyword.arg is None for keyword in call.keywords):
        raise TooInvolved(f"line {call.lineno} has ** in its arguments")
    values = dict(zip(_FED, call.args, strict=False)) | {
        keyword.arg: keyword.value for keyword in call.keywords if keyword.arg in _FED
    }
    if "x" not in values:
        raise TooInvolved(f"line {call.lineno} gives `fit` no data")
    if not isinstance(values.get("shuffle", ast.Constant(True)), ast.Constant):
        raise TooInvolved(f"line {call.lineno} decides while it runs whether `fit` shuffles")
    begin, end = text.span(values["x"])
    parts = [values[name] for name in _FED[:3] if name in values]
    given = [text.of(part) for part in parts if not (isinstance(part, ast.Constant) and part.value is None)]
    before, after = _with_batch_size(text, call, expression, values.get("batch_size")).split("{data}")
    if len(given) > 1:
        changes = [(begin, end, f"{before}({', '.join(given)}){after}")]
    else:
        simple = isinstance(values["x"], ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        opening, closing = ("", "") if simple else ("(", ")")
        changes = [(begin, begin, before + opening), (end, end, closing + after)]
    arguments: list[tuple[int, int, str | None]] = []
    arguments += [(*text.span(value), name) for name, value in zip(_FED, call.args, strict=False)]
    arguments += [(text.at(word.lineno, word.col_offset), text.span(word.value)[1], word.arg) for word in call.keywords]
    # Keras takes the size of batches for arrays to validate on as well, and ignores it for the dataset.
    stay = ("x", "batch_size") if any(word.arg == "validation_data" for word in call.keywords) else ("x",)
    leave = [name in _FED and name not in stay for _, _, name in arguments]
    kept = leave.index(False)  # at the latest that of `x`
    for number, (first, last, _) in enumerate(arguments):
        if leave[number]:
            gone = (first, arguments[number + 1][0]) if number < kept else (arguments[number - 1][1], last)
            changes.append((*gone, ""))
    return changes


def _with_batch_size(text: _Text, call: ast.Call, expression: str, batch_size: ast.expr | None) -> str:
    """Returns an expression with the code of the argument `batch_size` where it names that."""
    if "{batch_size}" not in expression:
        return expression
    if batch_size is None:
        raise TooInvolved(f"line {call.lineno} does not say what `batch_size` is")
    return expression.replace("{batch_size}", text.of(batch_size))


def _check_adjacent(tree: ast.Module, first: tuple[ast.Call, ast.stmt], second: tuple[ast.Call, ast.stmt]) -> None:
    """Checks that nothing but the second call reads what the first one makes.

    Raises:
      TooInvolved: if the second is neither called on the first, nor, in the next statement, on the variable that both
        statements assign.
    """
    (one, before), (other, behind) = first, second
    read = other.func.value if isinstance(other.func, ast.Attribute) else None
    names = [
        statement.targets[0].id
        for statement in (before, behind)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    ]
    made = before.value if isinstance(before, ast.Assign) else None
    own = isinstance(read, ast.Name) and names == [read.id, read.id] and made is one and _is_next(tree, before, behind)
    if isinstance(one.func, ast.Attribute) and read is not one and not own:
        raise TooInvolved(f"what line {one.lineno} makes may be read elsewhere as well")


def _is_next(tree: ast.Module, before: ast.stmt, behind: ast.stmt) -> bool:
    """Whether a statement stands right behind another in the same block."""
    blocks = (field for node in ast.walk(tree) for _, field in ast.iter_fields(node) if isinstance(field, list))
    return any((before, behind) in itertools.pairwise(block) for block in blocks)


def _swapped(
    text: _Text, calls: Sequence[ast.Call], changes: Sequence[tuple[int, int, str]]
) -> list[tuple[int, int, str]]:
    """Returns the changes with two calls of methods in each other's place, and the changes inside them made."""
    spans = []
    for call in calls:
        if not isinstance(call.func, ast.Attribute):
            raise TooInvolved(f"line {call.lineno} is no call of a method")
        spans.append((text.span(call.func.value)[1], text.span(call)[1]))
    inside: tuple[list[tuple[int, int, str]], ...] = ([], [])
    others = []
    for change in changes:
        for (begin, end), own in zip(spans, inside, strict=True):
            if begin <= change[0] and change[1] < end:
                own.append(change)
                break
        else:
            others.append(change)
    texts = [text.of_span(span, own) for span, own in zip(spans, inside, strict=True)]
    return [*others, *((*span, new) for span, new in zip(spans, reversed(texts), strict=True))]


def _imports(tree: ast.Module, text: _Text, edits: Sequence[Edit]) -> Iterator[tuple[int, int, str]]:
    """Yields the statements that import what edits need and the source does not import by that name."""
    nodes = list(_outside_functions(tree))
    statements: dict[int, str] = {}
    there = {
        alias.asname or alias.name.partition(".")[0]: ""
        if isinstance(node, ast.Import)
        else f"{node.module}.{alias.name}"
        for node in nodes
        for alias in node.names
    }
    for name, statement in _IMPORTS.items():
        needing = [
            edit for edit in edits if re.search(rf"\b{name}\.", edit.text) or (name == "tf" and edit.kind == "option")
        ]
        if needing and there.get(name) not in (None, "", *_MODULES_FROM):
            raise TooInvolved(f"`{name}` is {there[name]} in this file")
        if not needing or name in there:
            continue
        first = min(edit.place.line for edit in needing)
        before = [node for node in nodes if node in tree.body and node.lineno < first]
        if not before:
            raise TooInvolved(f"no line in front of line {first} imports anything, where `{statement}` could stand")
        _, end = text.span(before[-1])
        statements[end] = f"{statements.get(end, '')}\n{statement}"
    yield from ((end, end, lines) for end, lines in statements.items())


def _outside_functions(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yields the imports that a whole module sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _outside_functions(node)


def _options(tree: ast.Module, text: _Text, edits: Sequence[Edit]) -> Iterator[tuple[int, int, str]]:
    """Yields the statements that make a pipeline's options, one block for each place."""
    for place in dict.fromkeys(edit.place for edit in edits):
        _, statement = _find(tree, place)
        name, first = _options_name(tree), text.span(statement)[0]
        lines = [f"{name} = tf.data.Options()", *(f"{name}.{edit.text}" for edit in edits if edit.place == place)]
        yield first, first, "".join(f"{line}\n{' ' * statement.col_offset}" for line in lines)


def _options_name(tree: ast.Module) -> str:
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return "options" if "options" not in taken else "tuned_options"


def _rank(call: str) -> int:
    return next((at for at, name in enumerate(_ORDER) if call.startswith(name)), len(_ORDER))
