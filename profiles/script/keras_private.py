"""All private names of Keras that this package uses, for what Keras has no public name."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np


def missing_to_put_back(model: Any) -> str | None:
    """Says which private name Keras lacks that saving all of a model's state needs; None if Keras has all of them."""
    if not callable(getattr(model, "_flatten_layers", None)):
        return _lacks("putting a model back needs", "Model._flatten_layers")
    if not all(hasattr(variable, "_value") for variable in model.variables if isinstance(variable, keras.Variable)):
        return _lacks("putting a model back needs", "Variable._value")
    return None


def missing_to_count(model: Any) -> str | None:
    """Says that Keras lacks the private name that `images_weighed` reads; None if Keras has it."""
    if hasattr(model, "_loss_tracker"):
        return None
    return _lacks("counting what a batch holds needs", "Model._loss_tracker")


def _lacks(needs: str, name: str) -> str:
    return f"{needs} Keras' private {name}, which Keras {keras.__version__} does not have"


def layers_at_any_depth(model: Any) -> list[Any]:
    """Returns a model's layers, and the layers inside these."""
    return list(model._flatten_layers(include_self=False))


def has_value(variable: keras.Variable) -> bool:
    """Whether a variable has a value, which it gets when its layer is built."""
    return variable._value is not None


def images_weighed(model: Any) -> int | None:
    """Returns the images of the epoch so far, which Keras counts to weigh the loss; None where Keras does not count."""
    try:
        return int(np.asarray(model._loss_tracker.count)) or None
    except (AttributeError, TypeError, ValueError):
        return None
