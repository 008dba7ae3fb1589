"""Opens the model that a user names: a network of the catalogue, a function of theirs, or a `.keras` file."""

from __future__ import annotations

import difflib
import inspect
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import unstall
from unstall.models.catalogue import MODELS
from unstall.models.network import Network, Training

# How a user's model is compiled if it is not compiled yet.
_TUTORIAL = MODELS["cats-dogs-64"].training


class ModelError(ValueError):
    """A model that cannot be used here; the message names the model, the rule and the fix."""


def check_name(text: str) -> None:
    """Checks the name of a model as far as that is possible without importing Keras.

    Args:
      text: as in `open_model`.
    Raises:
      ModelError: if `text` is neither a name in `MODELS`, nor `module:function`, nor the path of an existing `.keras`
        file; or if it is the name of a network that does not take images of 3 channels.
    """
    if text in MODELS:
        if not hasattr(MODELS[text], "image_size"):
            shape = MODELS[text].input_shape
            raise ModelError(f"{text} takes {shape}, not images of 3 channels. To measure it, use unstall devices.")
        return
    if ":" in text:
        return
    if text.endswith((".h5", ".hdf5")):
        raise ModelError(f"{text}: HDF5 models are not opened, since they can run code. Save it as a .keras file.")
    if text.endswith(".keras"):
        if not Path(text).is_file():
            raise ModelError(f"{text} does not exist.")
        return
    names = [name for name, network in MODELS.items() if hasattr(network, "image_size")]
    nearest = difflib.get_close_matches(text, names, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise ModelError(f"{text!r} is not a model.{hint} Known: {', '.join(names)}; or module:function, or a .keras file.")


def open_model(text: str, *, classes: int) -> Any:
    """Opens a model, and compiles it unless it is compiled already.

    Args:
      text: a name in `MODELS`; `module:function`, which is called with `classes` if it takes a positional argument,
        else without arguments; or the path of a `.keras` file, which is opened in safe mode.
      classes: number of classes in the data.
    Returns:
      A compiled `keras.Model` that takes (batch, height, width, 3).
    Raises:
      ModelError: if there is no such model, or if the model does not fit images of 3 channels or these classes.
    """
    check_name(text)
    if text in MODELS:
        return compiled(MODELS[text], classes)
    model = load(text) if text.endswith(".keras") else _call(text, classes)
    image_size(model, text)
    _check_outputs(model, text, classes)
    if not model.compiled:
        compile_for(model)
    return model


def load(path: str) -> Any:
    """Opens a `.keras` file in safe mode.

    Raises:
      ModelError: if the file cannot be opened.
    """
    import keras

    import unstall.models.normalization  # noqa: F401 - registers our layer, which the file may hold

    if not _is_archive(path):  # Keras would say that there is no such file
        raise ModelError(f"{path} cannot be opened as a Keras model: it is no .keras file, or it is damaged.")
    try:
        return keras.models.load_model(path, safe_mode=True)
    except Exception as error:  # Keras raises many types; each means that the file cannot be opened
        raise ModelError(f"{path} cannot be opened as a Keras model: {_first_line(error)}.") from error


def _is_archive(path: str) -> bool:
    """Whether a file begins as a .keras file does, which is a zip archive."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _place(error: Exception) -> str:
    """Returns the last line of the user's own code that an error has passed, as " (train.py:12)"; empty for none."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)[1:]
        if not any(part in ("site-packages", "dist-packages") for part in Path(frame.filename).parts)
    ]
    return f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""


def _call(text: str, classes: int) -> Any:
    import keras

    # The user's code may raise anything; the user gets the first line of the message.
    try:
        function = unstall.of_users(text)
    except Exception as error:
        raise ModelError(f"{text}: {_first_line(error)}. Give module:function, importable from here.") from error
    if not callable(function):
        raise ModelError(f"{text} must be a function. Received: {type(function).__name__}.")
    try:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(function).parameters.values()
        positional = [parameter for parameter in parameters if parameter.kind in kinds]
        model = function(classes) if positional else function()
    except Exception as error:
        raise ModelError(f"{text} failed{_place(error)}: {type(error).__name__}: {_first_line(error)}.") from error
    if not isinstance(model, keras.Model):
        raise ModelError(f"{text} must return a keras.Model. Received: {type(model).__name__}.")
    return model


def image_size(model: Any, text: str = "the model") -> tuple[int, int]:
    """Returns the (height, width) in pixels that a model takes.

    Raises:
      ModelError: if the model's input is not one image of a fixed size with 3 channels.
    """
    shape: Any = getattr(model, "input_shape", None)
    fixed = isinstance(shape, tuple) and len(shape) == 4 and all(isinstance(side, int) for side in shape[1:])
    if not fixed or shape[3] != 3:
        raise ModelError(f"{text} must take images of shape (batch, height, width, 3). Received: input_shape={shape}.")
    return shape[1], shape[2]


def _check_outputs(model: Any, text: str, classes: int) -> None:
    shape = getattr(model, "output_shape", None)
    units = shape[-1] if isinstance(shape, tuple) and len(shape) == 2 else None
    if units is None or (units == 1 and classes != 2) or (units != 1 and units < classes):
        raise ModelError(
            f"{text} must end in one unit for 2 classes, or at least as many as there are classes ({classes}). "
            f"Received: output_shape={shape}."
        )


def compiled(network: Network, classes: int | None = None) -> Any:
    """Builds any network of the catalogue, and compiles it as published.

    Args:
      network: a value of `MODELS`.
      classes: number of classes; by default that of the published data. Required if these are the user's photos.
    Raises:
      ValueError: if `classes` is neither given nor published, or is below 2.
    """
    classes = network.classes if classes is None else classes
    if classes is None:
        raise ValueError("`classes` must be given for a network of photos. Received: classes=None.")
    model = network.build(classes)
    compile_for(model, network.training)
    return model


def compile_for(model: Any, training: Training = _TUTORIAL) -> None:
    """Compiles a model with the optimizer and metrics of `training`, and the cross-entropy that fits its outputs.

    Labels are integers. One output gets `binary_crossentropy`, more outputs `sparse_categorical_crossentropy`. The
    latter also serves networks that were published with `categorical_crossentropy` of one-hot labels, and with sigmoid
    outputs: on every backend both losses divide the outputs by their sum, and they differ only where an output lies
    within 1e-7 of 0 or 1.
    """
    import keras

    optimizer = keras.optimizers.get(training.optimizer)
    if training.learning_rate is not None:
        optimizer.learning_rate = training.learning_rate
    loss = "binary_crossentropy" if model.output_shape[-1] == 1 else "sparse_categorical_crossentropy"
    model.compile(optimizer=optimizer, loss=loss, metrics=list(training.metrics))


def behind(layers: tuple[Any, ...], model: Any, *, dtype: str) -> Any:
    """Returns a model that runs `layers` and then `model`; it shares `model`'s weights and is compiled like it.

    Args:
      layers: take and give images (batch, height, width, 3), such as rescaling or augmentation on the device.
      model: a compiled model.
      dtype: dtype of the images that the returned model takes.
    Raises:
      ModelError: if Keras cannot compile another model like `model`.
    """
    import keras

    inputs = keras.Input(model.input_shape[1:], dtype=dtype)
    outputs = inputs
    for layer in layers:
        outputs = layer(outputs)
    wrapped = keras.Model(inputs, model(outputs))
    try:
        with keras.saving.custom_object_scope(_own_losses(model)):
            wrapped.compile_from_config(model.get_compile_config())
    except ModelError:
        raise
    except Exception as error:  # Keras raises many types, also where a part of the user's is not registered
        raise ModelError(
            "decorate your own metrics and optimizers with @keras.saving.register_keras_serializable(), and give a "
            "loss that is a lambda a name: no second model can be compiled like this one. "
            f"{_first_line(error).partition('. ')[0]}"
        ) from error
    return wrapped


@dataclass(frozen=True, slots=True)
class _AsItIs:
    """Stands for a class from which Keras makes a loss anew: gives the loss that was there, which may have settings."""

    loss: Any

    def from_config(self, config: Any) -> Any:
        return self.loss


def _own_losses(model: Any) -> dict[str, Any]:
    """Returns what Keras gets a model's losses from, by the names under which it looks for them.

    Raises:
      ModelError: if two losses have one name.
    """
    import keras

    found: dict[str, Any] = {}
    for loss in keras.tree.flatten(model.loss):
        if not callable(loss):  # the name of one of Keras' own
            continue
        name, part = (loss.__name__, loss) if inspect.isfunction(loss) else (type(loss).__name__, _AsItIs(loss))
        if found.setdefault(name, part) != part:
            raise ModelError(f"two losses of the model are called {name}: give them different names")
    return found
