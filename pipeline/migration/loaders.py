"""Finds the loaders of images in a script: which of them have an equivalent in tf.data, and why others have none.

What each argument does: Keras, `src/legacy/preprocessing/image.py` and `src/utils/image_dataset_utils.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from unstall.pipeline.migration.parameters import DATASET, FLOW, FROM_DIRECTORY, GENERATOR
from unstall.pipeline.migration.values import Script, Unknown, dotted

# Settings without an equivalent, each with the values that leave it off.
_WITHOUT: Mapping[str, tuple[Any, ...]] = {
    "featurewise_center": (False, None),
    "featurewise_std_normalization": (False, None),
    "zca_whitening": (False, None),
    "data_format": (None, "channels_last"),
    "dtype": (None, "float32"),
    "interpolation_order": (1,),
    "save_to_dir": (None, ""),
    "keep_aspect_ratio": (False,),
    "sample_weight": (None,),
}
_REASONS = {
    "featurewise_center": "needs the statistics of `fit`",
    "featurewise_std_normalization": "needs the statistics of `fit`",
    "zca_whitening": "needs the statistics of `fit`",
}
_CHANNELS = {"rgb": 3, "grayscale": 1}
# Pillow's names of interpolations, with those of tf.image.
INTERPOLATIONS = {"nearest": "nearest", "bilinear": "bilinear", "bicubic": "bicubic", "lanczos": "lanczos3"}
_FILL_MODES = ("nearest", "reflect", "constant")  # the period of "wrap" is a pixel shorter in SciPy than in TensorFlow
_CLASS_MODES = ("categorical", "binary", "sparse", "input", None)
# An array, as Keras has it: `labels == 0` of a list is one False.
_LABELS = "tf.constant(labels, tf.int32).numpy()"
# What a script may read of an iterator of Keras', with the expression that a dataset of tf.data gets it by.
ATTRIBUTES = {
    "batch_size": "{batch_size}",
    "class_indices": "{{name: label for label, name in enumerate(names)}}",
    "class_names": "names",
    "classes": _LABELS,
    "file_paths": "paths",
    "filenames": "[os.path.relpath(path, directory) for path in paths]",
    "filepaths": "paths",
    "image_shape": "({height}, {width}, {channels})",
    "labels": _LABELS,
    "n": "len(paths)",
    "num_classes": "len(names)",
    "samples": "len(paths)",
}
_OF_DATASETS = (
    "as_numpy_iterator",
    "take",
    "map",
    "batch",
    "cache",
    "prefetch",
    "repeat",
    "shuffle",
    "skip",
    "unbatch",
)
# Calls that take a dataset as they take an iterator of Keras'.
_TAKE_DATASETS = (
    "evaluate",
    "evaluate_generator",
    "fit",
    "fit_generator",
    "id",
    "isinstance",
    "iter",
    "len",
    "predict",
    "predict_generator",
    "print",
    "repr",
    "search",
    "str",
    "type",
)
# Nodes that only look at what stands in them, as `if data is None` does.
_ONLY_LOOK = (ast.Assert, ast.Compare, ast.Expr, ast.FormattedValue, ast.If, ast.UnaryOp, ast.While)
_GOES_ON = (
    "it goes on from here: put `.repeat()` behind it where its steps are counted; "
    "the iterator's attributes are not there"
)
# Arguments of `fit`, `evaluate` and `predict` that take data, with those that count the steps of these data.
_STEPS = {
    "x": {"steps_per_epoch", "steps"},
    "generator": {"steps_per_epoch", "steps"},
    "validation_data": {"validation_steps"},
}
# What a script may read of arrays' iterator; other attributes are of files.
_ATTRIBUTES_OF_ARRAYS = ("batch_size", "n")
# Names that the written module has for itself.
_NAMES_OF_MODULE = ("READ", "keras", "list_images", "math", "np", "os", "read_image", "tf")
_GENERATOR_NAME = "ImageDataGenerator"
FLOWS = ("flow_from_directory", "flow")


class NoEquivalent(Exception):
    """A loader that stays as it is; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What an `ImageDataGenerator` draws for each image. Angles in degrees; ranges are drawn uniformly.

    Attributes:
      down, right: `height_shift_range`, `width_shift_range`: below 1 ratios of the image's side, else pixels.
      zoom: the lower and the upper end.
    """

    rotation: float = 0.0
    down: float = 0.0
    right: float = 0.0
    shear: float = 0.0
    zoom: tuple[float, float] = (1.0, 1.0)
    channel_shift: float = 0.0
    brightness: tuple[float, float] | None = None
    horizontal_flip: bool = False
    vertical_flip: bool = False
    fill_mode: str = "nearest"
    cval: float = 0.0

    @property
    def warps(self) -> bool:
        """Whether images are moved, turned or bent."""
        moves = self.rotation or self.down or self.right or self.shear or self.zoom != (1.0, 1.0)
        return bool(moves or self.horizontal_flip or self.vertical_flip)

    @property
    def any(self) -> bool:
        """Whether anything is drawn."""
        return bool(self.warps or self.channel_shift or self.brightness is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """A loader of Keras' that is written as tf.data.

    Attributes:
      name: of the function that is written: the name that the script gives what it loads.
      line: where the script calls Keras' loader.
      method: the function of Keras'.
      passed: (parameter, code) of what only the running script knows, and of its folder.
      directory: the folder, where the script's text says it.
      generator, call: the arguments that are known, by the names of Keras' parameters.
      draws: the augmentation.
      preprocessing: "batch" for a function of `keras.applications`, which takes tensors; "image" for another; or "".
      repeated: where the script counts the steps of what is loaded, so that the data there never end.
      attributes: names of `ATTRIBUTES` that the script reads of what it loads.
      node: the call, to be replaced.
    """

    name: str
    line: int
    method: str
    passed: tuple[tuple[str, str], ...]
    directory: str | None
    generator: Mapping[str, Any]
    call: Mapping[str, Any]
    draws: Draws
    preprocessing: str = ""
    repeated: tuple[ast.expr, ...] = ()
    attributes: tuple[str, ...] = ()
    node: ast.Call

    @property
    def image_size(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        size = self.call.get("image_size" if self.method.startswith("image_dataset") else "target_size", (256, 256))
        return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))

    @property
    def channels(self) -> int:
        """Of an image."""
        return _CHANNELS[self.call.get("color_mode", "rgb")]

    @property
    def part(self) -> tuple[float, float] | None:
        """The first and the last share of each class's files that are loaded; None for all."""
        split, subset = self.generator.get("validation_split") or 0.0, self.call.get("subset")
        if not split or subset is None:
            return None
        return (0.0, split) if subset == "validation" else (split, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """Code that has no equivalent, or that a person has to change.

    Attributes:
      line: in the script.
      what: the code, in words.
      reason: why, and what helps.
    """

    line: int
    what: str
    reason: str


def loaders_of(script: Script) -> tuple[list[Loader], list[Stays]]:
    """Returns the loaders of a script that have an equivalent, and what has none, each in the script's order."""
    loaders: list[Loader] = []
    stays: list[Stays] = []
    names = set(_NAMES_OF_MODULE)
    for node in ast.walk(script.tree):
        if isinstance(node, ast.ClassDef):
            if {script.called(base) for base in node.bases} & {"Sequence", "PyDataset"}:
                what = f"class {node.name}, {script.called(node.bases[0])}"
                reason = "its `__getitem__` is code of yours. `unstall` before the script finds what to do about it"
                stays.append(Stays(line=node.lineno, what=what, reason=reason))
            continue
        if not isinstance(node, ast.Call):
            continue
        method = script.called(node.func)
        if method not in ("flow_from_dataframe", *FLOWS, "image_dataset_from_directory"):
            continue
        if method != "image_dataset_from_directory" and _generator_call(script, node) is None:
            if method != "flow" and _GENERATOR_NAME in script.text:  # a name that other libraries have as well
                reason = "which ImageDataGenerator it is of is only known when the script runs"
                stays.append(Stays(line=node.lineno, what=method, reason=reason))
            continue
        try:
            loader, by_hand = _loader(script, node, method, names)
        except NoEquivalent as error:
            stays.append(Stays(line=node.lineno, what=method, reason=str(error)))
        else:
            loaders.append(loader)
            names.add(loader.name)
            stays += [stay for stay in by_hand if stay not in stays]  # two loaders may share a name
    return sorted(loaders, key=lambda loader: loader.line), sorted(stays, key=lambda stay: stay.line)


def _generator_call(script: Script, call: ast.Call) -> ast.Call | None:
    """Returns the call that makes the `ImageDataGenerator` whose method is called; None for another object."""
    made: ast.expr | None = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(made, ast.Name):
        made = script.given(made.id, call)
    if isinstance(made, ast.Call) and script.called(made.func) == _GENERATOR_NAME:
        return made
    return None


def _loader(script: Script, node: ast.Call, method: str, taken: set[str]) -> tuple[Loader, list[Stays]]:
    """Returns a loader, and the uses of what it gives that a dataset of tf.data does not allow.

    Raises:
      NoEquivalent: if it has no equivalent.
    """
    if method == "flow_from_dataframe":
        raise NoEquivalent("what it loads is in a table that only the running script has")
    parameters = {"flow": FLOW, "flow_from_directory": FROM_DIRECTORY}.get(method, DATASET)
    made = _generator_call(script, node)
    try:
        call = script.arguments(node, parameters)
        generator = script.arguments(made, GENERATOR) if made is not None and method in FLOWS else {}
    except ValueError as error:
        raise NoEquivalent(str(error)) from error
    passed: list[tuple[str, Any]] = [(name, call.pop(name)) for name in ("x", "y", "directory") if name in call]
    directory = passed[0][1] if passed and passed[0][0] == "directory" else None
    codes = {word.arg: script.code(word.value) for word in node.keywords if word.arg}
    codes |= {name: script.code(value) for name, value in zip(parameters, node.args, strict=False)}
    handed: list[tuple[str, str]] = [(name, codes.get(name, repr(value))) for name, value in passed]
    if isinstance(call.get("batch_size"), Unknown):
        handed.append(("batch_size", call.pop("batch_size").code))
    preprocessing = ""
    if (function := generator.pop("preprocessing_function", None)) is not None:
        if not isinstance(function, Unknown):
            raise NoEquivalent("its preprocessing_function is not the name of a function")
        handed.append(("preprocess", function.code))
        preprocessing = "batch" if ".applications." in script.imported.get(function.code, "") else "image"
    for name, value in {**generator, **call}.items():
        if isinstance(value, Unknown):
            raise NoEquivalent(f"`{name}={value.code}` is only known when the script runs")
    _check_types(generator, call)
    if method in FLOWS:
        _check(generator, call)
    else:
        _check_dataset(call)
    try:
        draws = _draws(generator)
    except (TypeError, ValueError, LookupError) as error:
        raise NoEquivalent("its ranges are of no form that Keras takes") from error
    variable = _variable(script, node)
    if method not in FLOWS and any(_is_cached(script, use) for use in _loads(script, variable, node)):
        raise NoEquivalent("the script caches it already")
    name = variable or f"images_{node.lineno}"
    if name in taken:
        name = f"{name}_{node.lineno}"
    if method in FLOWS:
        repeated, attributes, by_hand = _uses(script, variable, node, method)
    else:
        repeated, attributes, by_hand = (), (), []
    loader = Loader(
        name=name,
        line=node.lineno,
        method=method,
        passed=tuple(handed),
        directory=directory if isinstance(directory, str) else None,
        generator=generator,
        call=call,
        draws=draws,
        preprocessing=preprocessing,
        repeated=repeated,
        attributes=attributes,
        node=node,
    )
    return loader, by_hand


def _check_types(generator: Mapping[str, Any], call: Mapping[str, Any]) -> None:
    """Raises `NoEquivalent` for a value of a type that Keras does not take."""
    for name in ("rescale", "validation_split"):
        value = generator.get(name, call.get(name))
        if not isinstance(value or 0, int | float):
            raise NoEquivalent(f"`{name}={value!r}` is no number")
    for name in ("target_size", "image_size"):
        size = call.get(name, (256, 256))
        sides = (size, size) if name == "image_size" and isinstance(size, int) else size
        if not (isinstance(sides, list | tuple) and len(sides) == 2 and all(type(side) is int for side in sides)):
            raise NoEquivalent(f"`{name}={size!r}` is no size of an image")


def _check(generator: Mapping[str, Any], call: Mapping[str, Any]) -> None:
    """Raises `NoEquivalent` for what tf.data has not, or what Keras refuses."""
    for name, off in _WITHOUT.items():
        value = generator.get(name, call.get(name, off[0]))
        if value not in off:
            raise NoEquivalent(f"`{name}={value!r}` {_REASONS.get(name, 'has no equivalent')}")
    for name in ("width_shift_range", "height_shift_range"):
        value = generator.get(name, 0.0)
        if value and not isinstance(value, float):
            raise NoEquivalent(f"`{name}={value!r}`: only a float has an equivalent")
    choices: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
        "fill_mode": (generator.get("fill_mode", "nearest"), _FILL_MODES),
        "class_mode": (call.get("class_mode", "categorical"), _CLASS_MODES),
        "color_mode": (call.get("color_mode", "rgb"), tuple(_CHANNELS)),
        "interpolation": (call.get("interpolation", "nearest"), tuple(INTERPOLATIONS)),
        "subset": (call.get("subset"), (None, "training", "validation")),
    }
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            raise NoEquivalent(f"`{name}={value!r}` has no equivalent")


def _check_dataset(call: Mapping[str, Any]) -> None:
    """Raises `NoEquivalent` for a call of `image_dataset_from_directory` that cannot be made faster as it stands."""
    if call.get("batch_size", 32) is None:
        raise NoEquivalent("it is batched elsewhere: put `.cache()` behind it if its images fit into memory")
    if call.get("subset") == "both":
        raise NoEquivalent('subset="both" gives two data sets at once: ask for each by itself')
    if call.get("color_mode", "rgb") not in tuple(_CHANNELS):
        raise NoEquivalent(f"`color_mode={call['color_mode']!r}` has no equivalent")
    if call.get("format", "tf") != "tf":
        raise NoEquivalent(f"`format={call['format']!r}` is no tf.data")


def _is_cached(script: Script, node: ast.expr) -> bool:
    """Whether a script caches what an expression gives, also behind other methods, as `data.map(f).cache()` does."""
    above = script.parent(node)
    while isinstance(above, ast.Attribute) or (isinstance(above, ast.Call) and above.func is node):
        if isinstance(above, ast.Attribute) and above.attr == "cache":
            return True
        node, above = above, script.parent(above)
    return False


def _draws(generator: Mapping[str, Any]) -> Draws:
    zoom = generator.get("zoom_range", 0.0)
    brightness = generator.get("brightness_range")
    return Draws(
        rotation=float(generator.get("rotation_range") or 0),
        down=float(generator.get("height_shift_range") or 0),
        right=float(generator.get("width_shift_range") or 0),
        shear=float(generator.get("shear_range") or 0),
        zoom=(1 - zoom, 1 + zoom) if isinstance(zoom, int | float) else (float(zoom[0]), float(zoom[1])),
        channel_shift=float(generator.get("channel_shift_range") or 0),
        brightness=None if brightness is None else (float(brightness[0]), float(brightness[1])),
        horizontal_flip=bool(generator.get("horizontal_flip")),
        vertical_flip=bool(generator.get("vertical_flip")),
        fill_mode=generator.get("fill_mode", "nearest"),
        cval=float(generator.get("cval", 0.0)),
    )


def _variable(script: Script, node: ast.Call) -> str | None:
    """Returns the name that the script gives to what a call returns; None if it gives none, or several."""
    statement = script.parent(node)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign):
        target = statement.target
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


def _is_counted(script: Script, node: ast.expr) -> bool:
    """Whether data are given to a call that counts their steps, such as `fit(node, steps_per_epoch=9)`."""
    above = script.parent(node)
    name: str | None = "x"
    if isinstance(above, ast.keyword):
        name, above = above.arg, script.parent(above)
    elif isinstance(above, ast.Call) and above.args[:1] != [node]:
        return False
    if not isinstance(above, ast.Call):
        return False
    given = {word.arg: word.value for word in above.keywords}
    # Keras 2: `fit_generator(generator, steps_per_epoch)`, `evaluate_generator(generator, steps)`.
    if len(above.args) > 1 and ast.unparse(above.func).endswith("_generator"):
        given["steps"] = above.args[1]
    counts = [given[word] for word in _STEPS.get(name or "", ()) if word in given]
    return any(not (isinstance(count, ast.Constant) and count.value is None) for count in counts)


def _uses(
    script: Script, variable: str | None, call: ast.Call, method: str
) -> tuple[tuple[ast.expr, ...], tuple[str, ...], list[Stays]]:
    """Returns where steps are counted, which attributes are read, and what a person has to change.

    Args:
      variable: as in `_loads`.
    """
    repeated: list[ast.expr] = []
    attributes, by_hand = set(), []
    known = ATTRIBUTES if method != "flow" else _ATTRIBUTES_OF_ARRAYS
    data = variable or f"{method}(...)"

    def change(node: ast.expr | ast.stmt, what: str, reason: str) -> None:
        by_hand.append(Stays(line=node.lineno, what=what, reason=reason))

    for node in _loads(script, variable, call):
        above = script.parent(node)
        if isinstance(above, ast.keyword):
            above = script.parent(above)
        if isinstance(above, ast.Attribute):
            if above.attr in known:
                attributes.add(above.attr)
            elif above.attr not in _OF_DATASETS:
                what = f"{data}.{above.attr}"
                begins = "delete it: every pass over a dataset begins anew" if above.attr == "reset" else ""
                change(above, what, begins or f"a dataset has none; `next(iter({data}))` gives a batch")
        elif isinstance(above, ast.Call) and dotted(above.func) == "next":
            change(above, f"next({data})", f"a dataset is no iterator: `next(iter({data}))`")
        elif isinstance(above, ast.Call) and _reads_on(script, above):
            change(
                above, f"{dotted(above.func)}({data})", "the iterator never ends, and the dataset ends with its images"
            )
        elif isinstance(above, ast.Subscript):
            change(above, f"{data}[...]", f"a dataset has no index: `next(iter({data}))` gives a batch")
        elif isinstance(above, ast.For | ast.comprehension):
            change(node, f"for ... in {data}", "the iterator never ends, and the dataset ends with its images")
        elif _is_counted(script, node):
            repeated.append(node)
        elif above is not None and _goes_on(script, above):
            what = _place(above, data)
            if not any(stay.what == what for stay in by_hand):
                change(node, what, _GOES_ON)
    for statement in ast.walk(script.tree):
        if not (isinstance(statement, ast.Global | ast.Nonlocal) and variable in statement.names):
            continue
        if script.scope_of(statement) is script.scope_of(call):
            change(statement, f"{type(statement).__name__.lower()} {variable}", _GOES_ON)
    return tuple(repeated), tuple(sorted(attributes)), by_hand


def _loads(script: Script, variable: str | None, call: ast.Call) -> Iterator[ast.expr]:
    """Yields where a script uses what a call returns: its name, also in functions inside of the name's scope.

    Args:
      variable: the name; None where the script uses the call itself.
    """
    if variable is None:
        yield call
        return
    for node in ast.walk(script.tree):
        if not (isinstance(node, ast.Name) and node.id == variable and isinstance(node.ctx, ast.Load)):
            continue
        if script.owner(node.id, node) is script.scope_of(call):
            yield node


def _goes_on(script: Script, above: ast.AST) -> bool:
    """Whether data that stand in a node go on under another name, where their uses are not looked for."""
    if isinstance(above, ast.Call):
        return script.called(above.func) not in _TAKE_DATASETS
    return not isinstance(above, _ONLY_LOOK)


def _place(above: ast.AST, data: str) -> str:
    """Returns in words where data go on from."""
    if isinstance(above, ast.Call):
        return f"{dotted(above.func) or '...'}({data})"
    return f"return {data}" if isinstance(above, ast.Return) else data


def _reads_on(script: Script, call: ast.Call) -> bool:
    """Whether a call gives an iterator that goes on with what it is given, as `zip` does; not `next(iter(data))`."""
    name, above = dotted(call.func), script.parent(call)
    if name == "iter":
        return not (isinstance(above, ast.Call) and dotted(above.func) == "next")
    return name in ("enumerate", "map", "zip") or (name or "").startswith("itertools.")


def constructors(script: Script, loaders: list[Loader]) -> Iterator[ast.Assign]:
    """Yields the statements that make an `ImageDataGenerator` which nobody needs once its loaders are replaced."""
    replaced = {node for loader in loaders for node in ast.walk(loader.node.func) if isinstance(node, ast.Name)}
    names = {node.id for node in replaced}
    used = {
        node.id
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in replaced
    }
    for node in script.tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        target = node.targets[0]
        makes = script.called(node.value.func) == _GENERATOR_NAME
        if makes and isinstance(target, ast.Name) and target.id in names - used:
            yield node
