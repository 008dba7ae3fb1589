"""Writes the tf.data module of a migrated script, and the diff that adds it and makes the script use it."""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Mapping, Sequence

from unstall.pipeline.migration.loaders import ATTRIBUTES, FLOWS, INTERPOLATIONS, Draws, Loader, constructors
from unstall.pipeline.migration.values import Script
from unstall.pipeline.templating import code_template

_FLOAT_BYTES = 4
# A name that is no code in a docstring.
_PLAIN_NAME = re.compile(r"[\w .()+-]+")


def module_text(script: str, loaders: Sequence[Loader], cached_bytes: Mapping[str, int]) -> str:
    """Returns the module that holds a function for each loader.

    Args:
      script: the name of the script.
      cached_bytes: what the images take in memory, for each loader whose images are to be kept there.
    """
    augmenting: dict[object, str] = {}  # loaders with equal draws share one function
    for loader in loaders:
        if loader.draws.any:
            augmenting.setdefault(_drawing(loader), loader.name)
    return code_template("migrated.py.j2").render(
        script=script if _PLAIN_NAME.fullmatch(script) else "a script",
        loaders=loaders,
        any_warp=any(loader.draws.rotation or loader.draws.shear for loader in loaders),
        any_numpy=any(loader.method == "flow" or loader.preprocessing == "image" for loader in loaders),
        any_dataset=any(loader.method not in FLOWS for loader in loaders),
        reads_files=any(loader.method == "flow_from_directory" for loader in loaders),
        resizes_smoothly=any(method != "nearest" for method in map(_method, loaders)),
        methods={loader.name: _method(loader) for loader in loaders},
        lines={loader.name: _warp(loader) for loader in loaders},
        augmented_by={loader.name: augmenting[_drawing(loader)] for loader in loaders if loader.draws.any},
        rescaled={loader.name: _rescaled(loader) for loader in loaders},
        numbers={loader.name: _numbers(loader.draws) for loader in loaders},
        drawn={loader.name: drawn_text(loader.draws) for loader in loaders},
        cached={name: _size_text(size) for name, size in cached_bytes.items()},
        batch={loader.name: _batch(loader) for loader in loaders},
        seed={loader.name: _seed(loader) for loader in loaders},
        listed={loader.name: _listed(loader) for loader in loaders},
        attributes={loader.name: _attributes(loader) for loader in loaders},
    )


def cached_bytes(loader: Loader, images: int) -> int:
    """Returns what the decoded images of a loader take in memory: whole bytes, or float32 from Keras' own reader."""
    height, width = loader.image_size
    return images * height * width * loader.channels * (1 if loader.method in FLOWS else _FLOAT_BYTES)


def drawn_text(draws: Draws) -> str:
    """Returns what is drawn for each image, in words."""
    parts = {
        f"turned by up to {draws.rotation:g} degrees": draws.rotation,
        f"moved by up to {_share(draws.down)} in height": draws.down,
        f"moved by up to {_share(draws.right)} in width": draws.right,
        f"sheared by up to {draws.shear:g} degrees": draws.shear,
        f"zoomed by {_range(draws.zoom)}": draws.zoom != (1.0, 1.0),
        "mirrored in half of cases": draws.horizontal_flip,
        "upside down in half of cases": draws.vertical_flip,
        f"channels shifted by up to {draws.channel_shift:g}": draws.channel_shift,
        f"made {_range(draws.brightness)} times as bright": draws.brightness is not None,
    }
    return ", ".join(text for text, drawn in parts.items() if drawn)


def _range(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:g} to {ends[1]:g}"


def _share(value: float) -> str:
    return f"{value:.0%}" if value < 1 else f"{value:g} pixels"


def _drawing(loader: Loader) -> object:
    """Returns what an augmenting function depends on."""
    return loader.draws, None if loader.method == "flow" else loader.image_size


def _rescaled(loader: Loader) -> str:
    """Returns the operation that rescales: a division by a whole number where the script writes it so."""
    factor = loader.generator.get("rescale")
    if not factor:
        return ""
    return f"/ {1 / factor!r}" if (1 / factor).is_integer() else f"* {factor!r}"


def _numbers(draws: Draws) -> list[str]:
    """Returns the names of the random numbers of an image, in the order of their rows."""
    drawn = {
        "rotation": draws.rotation,
        "down": draws.down,
        "right": draws.right,
        "shear": draws.shear,
        "zoom_x": draws.zoom != (1.0, 1.0),
        "zoom_y": draws.zoom != (1.0, 1.0),
        "horizontal_flip": draws.horizontal_flip,
        "vertical_flip": draws.vertical_flip,
        "channel_shift": draws.channel_shift,
        "brightness": draws.brightness is not None,
    }
    return [name for name, is_drawn in drawn.items() if is_drawn]


def _warp(loader: Loader) -> list[str]:
    """Returns the lines that make the maps from output to input pixels: rotation, shift, shear, zoom, then mirrors.

    Keras multiplies the four matrices in this order and mirrors what comes out. Its shift in height moves along x.
    """
    draws, numbers = loader.draws, _numbers(loader.draws)
    if not draws.warps:
        return []
    height, width = ("height", "width") if loader.method == "flow" else map(str, loader.image_size)

    def number(name: str) -> str:
        return f"draws[{numbers.index(name)}]"

    def even(name: str, most: str) -> str:
        return f"{name} = (2 * {number(name)} - 1) * {most}"

    def zoom(name: str) -> str:
        low, high = draws.zoom
        return f"{name} = {low!r} + {number(name)} * {round(high - low, 12)!r}"

    lines = []
    if draws.rotation:
        lines.append(even("rotation", f"math.radians({draws.rotation:g})"))
    if draws.down:
        lines.append(even("down", f"{draws.down!r} * {height}" if draws.down < 1 else repr(draws.down)))
    if draws.right:
        lines.append(even("right", f"{draws.right!r} * {width}" if draws.right < 1 else repr(draws.right)))
    if draws.shear:
        lines.append(even("shear", f"math.radians({draws.shear:g})"))
    if "zoom_x" in numbers:
        lines += [zoom("zoom_x"), zoom("zoom_y")]
    turn, bend = "rotation" if draws.rotation else "", "shear" if draws.shear else ""
    both = " + ".join(part for part in (turn, bend) if part)
    across, along = ("zoom_x", "zoom_y") if "zoom_x" in numbers else ("", "")
    entries = {
        "xx": _product(f"tf.cos({turn})" if turn else "", across),
        "xy": _product(f"-tf.sin({both})" if both else "0", along),
        "yx": _product(f"tf.sin({turn})" if turn else "0", across),
        "yy": _product(f"tf.cos({both})" if both else "", along),
    }
    if draws.horizontal_flip:
        lines.append(f"mirror = tf.where({number('horizontal_flip')} < 0.5, -1.0, 1.0)")
    if draws.vertical_flip:
        lines.append(f"turned = tf.where({number('vertical_flip')} < 0.5, -1.0, 1.0)")
    for name, code in entries.items():
        flip = "mirror" if name.endswith("x") else "turned"
        flips = draws.horizontal_flip if name.endswith("x") else draws.vertical_flip
        code = _product(code, flip) if flips else code
        is_number = not any(letter.isalpha() for letter in code)  # the same for all images of the batch
        lines.append(f"{name} = tf.fill([count], {float(code or 1)})" if is_number else f"{name} = {code}")
    x, y = _middle(width), _middle(height)
    moved_x, moved_y = _moved(draws, turn)
    lines.append(f"x = {x} - xx * {x} - xy * {y}{moved_x}")
    lines.append(f"y = {y} - yx * {x} - yy * {y}{moved_y}")
    return lines


def _product(left: str, right: str) -> str:
    if "0" in (left, right):
        return "0"
    return " * ".join(part for part in (left, right) if part)


def _middle(side: str) -> str:
    """Returns the middle between the first and the last pixel of a side."""
    return f"({side} / 2 - 0.5)" if side.isalpha() else repr(int(side) / 2 - 0.5)


def _moved(draws: Draws, turn: str) -> tuple[str, str]:
    """Returns what is added to x and y for the shift, which is turned with the image."""
    if not (draws.down or draws.right):
        return "", ""
    down, right = "down" if draws.down else "", "right" if draws.right else ""
    if not turn:
        return (f" + {down}" if down else ""), (f" + {right}" if right else "")
    x = (f" + tf.cos({turn}) * {down}" if down else "") + (f" - tf.sin({turn}) * {right}" if right else "")
    y = (f" + tf.sin({turn}) * {down}" if down else "") + (f" + tf.cos({turn}) * {right}" if right else "")
    return x, y


def _method(loader: Loader) -> str:
    if loader.method != "flow_from_directory":
        return "nearest"
    return INTERPOLATIONS[loader.call.get("interpolation", "nearest")]


def _batch(loader: Loader) -> str:
    is_passed = any(name == "batch_size" for name, _ in loader.passed)
    return "batch_size" if is_passed else str(loader.call.get("batch_size", 32))


def _seed(loader: Loader) -> str:
    return f", seed={seed!r}" if (seed := loader.call.get("seed")) is not None else ""


def _listed(loader: Loader) -> str:
    text = f", {list(classes)!r}" if (classes := loader.call.get("classes")) else ""
    if loader.part is not None:
        text += f", first={loader.part[0]!r}, last={loader.part[1]!r}"
    return f"{text}, follow_links=True" if loader.call.get("follow_links") else text


def _attributes(loader: Loader) -> list[tuple[str, str]]:
    height, width = loader.image_size
    texts = {"batch_size": _batch(loader), "height": height, "width": width, "channels": loader.channels}
    codes = ATTRIBUTES | ({"n": "len(x)"} if loader.method == "flow" else {})
    return [(name, codes[name].format(**texts)) for name in loader.attributes]


def _size_text(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{math.ceil(size / 1e6)} MB"


def script_text(script: Script, loaders: Sequence[Loader], module: str) -> str:
    """Returns the script's text with the calls of Keras' loaders replaced by those of the module."""
    lines = _lines(script.text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    text = script.text.encode()

    def place(line: int, column: int) -> int:
        return starts[line - 1] + column

    changes = []
    for loader in loaders:
        node = loader.node
        code = f"{module}.{loader.name}({', '.join(code for _, code in loader.passed)})"
        end = place(node.end_lineno or 0, node.end_col_offset or 0)
        changes.append((place(node.lineno, node.col_offset), end, code))
        for data in loader.repeated:
            behind = place(data.end_lineno or 0, data.end_col_offset or 0)
            changes.append((behind, behind, ".repeat()"))
    for statement in constructors(script, list(loaders)):
        line = lines[statement.lineno - 1]
        if not line[: statement.col_offset].strip() and ";" not in line:  # it has its lines for itself
            changes.append((starts[statement.lineno - 1], starts[statement.end_lineno or statement.lineno], ""))
    at = starts[_import_line(script.tree, min(loader.node.lineno for loader in loaders))]
    line_end = "\r\n" if "\r\n" in script.text else "\n"
    changes.append((at, at, f"import {module}{line_end}"))
    for first, last, code in sorted(changes, reverse=True):
        text = text[:first] + code.encode() + text[last:]
    return text.decode()


def _import_line(tree: ast.Module, before: int) -> int:
    """Returns the number of lines before the place of a new import: behind the last of the module's own imports.

    The new one imports TensorFlow: what a script sets before its own import, such as `KERAS_BACKEND`, stays before it.

    Args:
      before: the first line that needs the new import.
    """
    last = 0
    for number, node in enumerate(tree.body):
        is_text = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if (is_text or isinstance(node, ast.Import | ast.ImportFrom)) and node.lineno < before:
            last = node.end_lineno or node.lineno
    return last


def _lines(text: str) -> list[str]:
    """Returns the lines as Python counts them: a form feed ends none."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def diff_text(name: str, before: str, after: str) -> str:
    """Returns the unified diff of a file, which `patch -p1` and `git apply` read; `before` is "" for a new file."""
    end = "\t" if " " in name else ""  # a name with spaces ends with a tab
    old, new = f"a/{name}{end}" if before else "/dev/null", f"b/{name}{end}"
    parts = difflib.unified_diff(_lines(before), _lines(after), old, new)
    return "".join(part if part.endswith("\n") else f"{part}\n\\ No newline at end of file\n" for part in parts)
