"""A trained model as it is kept: one file with its preprocessing in front of it and the names of its classes behind.

Whoever loads it feeds it photos as they are: uint8, 0 to 255, of any size. Only layers of Keras are added, so that
`keras.models.load_model(path, safe_mode=True)` opens it in a script that knows nothing of this project.
"""

from __future__ import annotations

import errno
import inspect
import os
import secrets
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.opening import ModelError, load

# The last layer's name begins so, and goes on with the classes: a name is what Keras keeps of a text, whoever loads and
# saves the file again. An entry of our own in the archive would be lost with that.
_CLASSES = "classes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A model that was kept with all that it needs.

    Attributes:
      model: takes (batch, height, width, 3) uint8 of any size; of two classes it gives the probability of the second,
        (batch, 1), else one of each, (batch, classes).
      class_names: in the order of the labels.
    """

    model: Any
    class_names: tuple[str, ...]


def finish(network: Any, class_names: Sequence[str], *, interpolation: str, antialias: bool) -> Any:
    """Returns a model that takes photos as they are, around a trained network, whose weights it shares.

    Args:
      network: takes (batch, height, width, 3) float32 in [0, 1].
      class_names: in the order of the labels.
      interpolation: how the photos that it learned from were resized: "bilinear" or "nearest".
      antialias: whether they were smoothed where they were made smaller.
    Raises:
      ModelError: if its outputs are not those of these classes.
    """
    import keras

    check_classes(network, class_names)
    height, width = network.input_shape[1:3]
    photos = keras.Input((None, None, 3), dtype="uint8", name="photos")
    # Rescaled first: Keras rounds what it makes of whole numbers to whole numbers, which no pipeline does.
    outputs = keras.layers.Rescaling(1 / 255, name="rescale")(photos)
    outputs = _resize(outputs, (height, width), interpolation, antialias)
    outputs = network(outputs)
    outputs = keras.layers.Identity(name=encode_names(class_names))(outputs)
    return keras.Model(photos, outputs)


def _resize(photos: Any, size: tuple[int, int], interpolation: str, antialias: bool) -> Any:
    import keras

    if not antialias:
        return keras.layers.Resizing(*size, interpolation=interpolation, name="resize")(photos)
    if "antialias" not in inspect.signature(keras.layers.Resizing.__init__).parameters:
        # Keras 3.8: the operation that the layer would call. A model of it opens in safe mode as well.
        return keras.ops.image.resize(photos, size, interpolation=interpolation, antialias=True)
    return keras.layers.Resizing(*size, interpolation=interpolation, antialias=True, name="resize")(photos)


def check_classes(network: Any, class_names: Sequence[str]) -> None:
    """Checks that a network has one output for each class, or one for two.

    Raises:
      ModelError: if not.
    """
    units = network.output_shape[-1]
    if units != (1 if units == 1 and len(class_names) == 2 else len(class_names)):
        raise ModelError(
            f"The model must end in as many units as there are classes ({len(class_names)}), or in one for two. "
            f"Received: output_shape={network.output_shape}."
        )


def encode_names(class_names: Sequence[str]) -> str:
    """Returns the names as one that a layer can have: TensorFlow takes letters, digits and `_.\\/>-` in it."""
    quoted = (urllib.parse.quote(name, safe="") for name in class_names)
    return ".".join([_CLASSES, *(one.replace(".", "%2E").replace("~", "%7E").replace("%", ">") for one in quoted)])


def decode_names(name: str) -> tuple[str, ...]:
    """Returns the names of a layer that `encode_names` named; of any other, none."""
    begin, *names = name.split(".")
    return tuple(urllib.parse.unquote(one.replace(">", "%")) for one in names) if begin == _CLASSES else ()


def foreign_layers(model: Any) -> tuple[str, ...]:
    """Returns the kinds of layers that Keras does not have: whoever loads the file must import them first.

    Raises:
      ModelError: if Keras lacks the private name that lists layers at any depth.
    """
    if not callable(getattr(model, "_flatten_layers", None)):
        import keras

        raise ModelError(
            "finding layers that are not Keras' own needs Keras' private Model._flatten_layers, "
            f"which Keras {keras.__version__} does not have"
        )
    layers = model._flatten_layers(include_self=False)  # a network in a network has layers, too
    names = {type(layer).__name__ for layer in layers if not type(layer).__module__.startswith("keras.")}
    return tuple(sorted(names))


def save(model: Any, path: Path, *, overwrite: bool) -> None:
    """Writes a model aside, then gives it its name in one step.

    Raises:
      FileExistsError: if there is such a file, unless `overwrite`.
    """
    partial = path.with_name(f".{path.stem}-{secrets.token_hex(8)}.keras")
    try:
        model.save(partial)
        if overwrite:
            os.replace(partial, path)
        else:
            _give_name(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _give_name(partial: Path, path: Path) -> None:
    try:
        os.link(partial, path)  # unlike a rename, it refuses where another has taken the name meanwhile
    except FileExistsError:
        raise
    except OSError as error:  # a file system without links
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        os.replace(partial, path)


def check_file(path: str) -> None:
    """Refuses what is no .keras file, without importing Keras.

    Raises:
      ModelError: if the name ends otherwise, or there is no such file.
    """
    if not path.endswith(".keras"):
        raise ModelError(f"{path} must be a .keras file.")
    if not Path(path).is_file():
        raise ModelError(f"{path} does not exist.")


def open_finished(path: str) -> Finished:
    """Opens a model that `save` wrote.

    Raises:
      ModelError: if the file cannot be opened, or the model in it does not hold its preprocessing and classes.
    """
    check_file(path)
    model = load(path)
    names = decode_names(model.layers[-1].name) if model.layers else ()
    if not names or getattr(model, "input_shape", None) != (None, None, None, 3) or model.inputs[0].dtype != "uint8":
        raise ModelError(
            f"{path} does not hold its preprocessing and the names of its classes, so that photos as they are would be "
            "classified wrongly. Train it with `python -m benchmarks.train`."
        )
    return Finished(model=model, class_names=names)
