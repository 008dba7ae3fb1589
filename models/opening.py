"""Opens the model that a user names: one of ours, their function, or their `.keras` file."""

from __future__ import annotations

import difflib
import inspect
from pathlib import Path
from typing import Any

import unstall
from models.catalogue import MODELS
from models.network import Network, Training

# What a network of the user's own is compiled as: the tutorial's way.
_TUTORIAL = MODELS["cats-dogs-64"].training


class ModelError(ValueError):
    """A model that cannot be used here; the message says what, the rule and the fix."""


def check_name(text: str) -> None:
    """Checks what can be checked without importing Keras.

    Raises:
      ModelError: if `text` is no known name, no `module:function` and no `.keras` file that is there; or the name of a
        network that takes no images of 3 channels.
    """
    if text in MODELS:
        if not hasattr(MODELS[text], "image_size"):
            shape = MODELS[text].input_shape
            raise ModelError(
                f"{text} takes {shape}, not images of 3 channels. To measure it, use python -m benchmarks.devices."
            )
        return
    if ":" in text:
        return
    if text.endswith((".h5", ".hdf5")):
        raise ModelError(f"{text}: HDF5 models are not opened, since they can run code. Save it as a .keras file.")
    if text.endswith(".keras"):
        if not Path(text).is_file():
            raise ModelError(f"{text} does not exist.")
        return
    known = [name for name, network in MODELS.items() if hasattr(network, "image_size")]
    near = difflib.get_close_matches(text, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ModelError(f"{text!r} is not a model.{hint} Known: {', '.join(known)}; or module:function, or a .keras file.")


def open_model(text: str, *, classes: int) -> Any:
    """Opens and, where it is not, compiles a model.

    Args:
      text: a name from `MODELS`; `module:function`, called with `classes` if it takes an argument, else with nothing;
        or the path of a `.keras` file, opened in safe mode.
      classes: classes in the data.
    Returns:
      A compiled `keras.Model` that takes (batch, height, width, 3).
    Raises:
      ModelError: if there is no such model, or it does not take these images or classes.
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
      ModelError: if it cannot be.
    """
    import keras

    import models.normalization  # noqa: F401 - the file may hold this layer of ours

    try:
        return keras.models.load_model(path, safe_mode=True)
    except Exception as error:  # Keras raises many kinds; all mean that the file is no model that can be opened
        raise ModelError(f"{path} cannot be opened as a Keras model: {_first_line(error)}.") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _call(text: str, classes: int) -> Any:
    import keras

    # It is the user's code: whatever it raises, they get one line of it.
    try:
        function = unstall.of_users(text)
    except Exception as error:
        raise ModelError(f"{text}: {_first_line(error)}. Give module:function, importable from here.") from error
    if not callable(function):
        raise ModelError(f"{text} must be a function. Received: {type(function).__name__}.")
    try:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        takes = [one for one in inspect.signature(function).parameters.values() if one.kind in kinds]
        model = function(classes) if takes else function()
    except Exception as error:
        raise ModelError(f"{text} failed: {type(error).__name__}: {_first_line(error)}.") from error
    if not isinstance(model, keras.Model):
        raise ModelError(f"{text} must return a keras.Model. Received: {type(model).__name__}.")
    return model


def image_size(model: Any, text: str = "the model") -> tuple[int, int]:
    """Returns the (height, width) in pixels that a model takes.

    Raises:
      ModelError: if its input is not one image of a fixed size with 3 channels.
    """
    shape: Any = getattr(model, "input_shape", None)
    single = isinstance(shape, tuple) and len(shape) == 4 and all(isinstance(side, int) for side in shape[1:])
    if not single or shape[3] != 3:
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
    """Builds a network of the catalogue, any of them, and compiles it as it was published.

    Args:
      network: a value of `MODELS`.
      classes: those of the published data unless given; needed where the data are the user's photos.
    Raises:
      ValueError: if `classes` is neither given nor published.
    """
    classes = network.classes if classes is None else classes
    if classes is None:
        raise ValueError("`classes` must be given for a network of photos. Received: classes=None.")
    model = network.build(classes)
    compile_for(model, network.training)
    return model


def compile_for(model: Any, training: Training = _TUTORIAL) -> None:
    """Compiles with the optimizer and metrics of `training`, and the cross-entropy that belongs to the outputs.

    Labels are integers throughout. One output is binary; with more, Keras' `sparse_categorical_crossentropy` is
    `categorical_crossentropy` of the one-hot label on every backend: it, too, divides the outputs by their sum, so that
    sigmoid outputs may be published with either. They differ only where an output lies within 1e-7 of 0 or 1.
    """
    import keras

    optimizer = keras.optimizers.get(training.optimizer)
    if training.learning_rate is not None:
        optimizer.learning_rate = training.learning_rate
    loss = "binary_crossentropy" if model.output_shape[-1] == 1 else "sparse_categorical_crossentropy"
    model.compile(optimizer=optimizer, loss=loss, metrics=list(training.metrics))


def behind(layers: tuple[Any, ...], model: Any, *, dtype: str) -> Any:
    """Returns a model with `layers` in front of `model`, sharing its weights, compiled as it is.

    Args:
      layers: for images (batch, height, width, 3), such as a rescale or augmentation, to run on the device.
      model: compiled.
      dtype: of the images that arrive.
    """
    import keras

    inputs = keras.Input(model.input_shape[1:], dtype=dtype)
    outputs = inputs
    for layer in layers:
        outputs = layer(outputs)
    wrapped = keras.Model(inputs, model(outputs))
    wrapped.compile_from_config(model.get_compile_config())
    return wrapped
