"""Writes and opens trained models: one `.keras` file holds the preprocessing, the network and the class names.

Such a model takes photos as they are: uint8, 0 to 255, of any size. What is added to the network are Keras' own layers,
so that `keras.models.load_model(path, safe_mode=True)` opens the file in a script without this project.
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

from unstall.models.opening import ModelError, load

# The last layer's name is this word and the class names. Keras keeps the names of layers when a script loads the file
# and saves it again; it would drop a file of ours in the archive.
_CLASSES = "classes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A trained model with its preprocessing, and its class names.

    Attributes:
      model: takes (batch, height, width, 3) uint8 of any size; gives (batch, classes) probabilities, or (batch, 1), the
        probability of the second of two classes.
      class_names: in the order of the labels.
    """

    model: Any
    class_names: tuple[str, ...]


def finish(network: Any, class_names: Sequence[str], *, interpolation: str, antialias: bool) -> Any:
    """Returns a model that takes photos as they are: preprocessing, then the network, whose weights it shares.

    Args:
      network: a trained model that takes (batch, height, width, 3) float32 in [0, 1].
      class_names: in the order of the labels.
      interpolation: how the training photos were resized: "bilinear" or "nearest".
      antialias: whether the training photos were smoothed where they were made smaller.
    Raises:
      ModelError: if the number of outputs does not fit the classes.
    """
    import keras

    check_classes(network, class_names)
    height, width = network.input_shape[1:3]
    photos = keras.Input((None, None, 3), dtype="uint8", name="photos")
    # Rescale before resizing: Keras rounds the resized pixels of uint8 images, which no pipeline does.
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
        # Keras 3.8: call the operation that the layer would call. The model still opens in safe mode.
        return keras.ops.image.resize(photos, size, interpolation=interpolation, antialias=True)
    return keras.layers.Resizing(*size, interpolation=interpolation, antialias=True, name="resize")(photos)


def check_classes(network: Any, class_names: Sequence[str]) -> None:
    """Checks that a network has one output per class, or one output for two classes.

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
    """Returns the name of a layer that holds the class names; TensorFlow allows letters, digits and `_.\\/>-`."""
    quoted = (urllib.parse.quote(os.fsencode(name), safe="") for name in class_names)  # names of folders: any bytes
    return ".".join([_CLASSES, *(name.replace(".", "%2E").replace("~", "%7E").replace("%", ">") for name in quoted)])


def decode_names(layer_name: str) -> tuple[str, ...]:
    """Returns the class names in a name of `encode_names`; () for the name of any other layer."""
    begin, *quoted = layer_name.split(".")
    if begin != _CLASSES:
        return ()
    return tuple(os.fsdecode(urllib.parse.unquote_to_bytes(name.replace(">", "%"))) for name in quoted)


def foreign_layers(model: Any) -> tuple[str, ...]:
    """Returns the sorted class names of the layers that are not Keras' own; a script imports them to load the file.

    Raises:
      ModelError: if Keras lacks the private method that lists nested layers.
    """
    if not callable(getattr(model, "_flatten_layers", None)):
        import keras

        raise ModelError(
            "finding layers that are not Keras' own needs Keras' private Model._flatten_layers, "
            f"which Keras {keras.__version__} does not have"
        )
    layers = model._flatten_layers(include_self=False)  # with the layers of models inside the model
    names = {type(layer).__name__ for layer in layers if not type(layer).__module__.startswith("keras.")}
    return tuple(sorted(names))


def save(model: Any, path: Path, *, overwrite: bool) -> None:
    """Writes a model under a temporary name, and renames the file to `path` in one step.

    Raises:
      FileExistsError: if `path` exists, unless `overwrite`.
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
        os.link(partial, path)  # unlike a rename, fails if another process has taken the name meanwhile
    except FileExistsError:
        raise
    except OSError as error:  # a file system without links
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        os.replace(partial, path)


def check_file(path: str) -> None:
    """Checks that `path` is an existing .keras file, without importing Keras.

    Raises:
      ModelError: if the name does not end in .keras, or there is no such file.
    """
    if not path.endswith(".keras"):
        raise ModelError(f"{path} must be a .keras file.")
    if not Path(path).is_file():
        raise ModelError(f"{path} does not exist.")


def open_finished(path: str) -> Finished:
    """Opens a file that `save` wrote.

    Raises:
      ModelError: if the file cannot be opened, or its model lacks the preprocessing or the class names.
    """
    check_file(path)
    model = load(path)
    names = decode_names(model.layers[-1].name) if model.layers else ()
    if not names or getattr(model, "input_shape", None) != (None, None, None, 3) or model.inputs[0].dtype != "uint8":
        raise ModelError(
            f"{path} does not hold its preprocessing and the names of its classes, so that photos as they are would be "
            "classified wrongly. Train it with `unstall train`."
        )
    return Finished(model=model, class_names=names)
