"""What Keras has no public name for: all private names of Keras that this package uses stand here."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np


def missing_to_put_back(model: Any) -> str | None:
    """Says which private name that saving all of a model's state needs Keras does not have; None if it has all."""
    if not callable(getattr(model, "_flatten_layers", None)):
        return _lacks("putting a model back needs", "Model._flatten_layers")
    if not all(hasattr(one, "_value") for one in model.variables if isinstance(one, keras.Variable)):
        return _lacks("putting a model back needs", "Variable._value")
    return None


def missing_to_count(model: Any) -> str | None:
    """Says that Keras does not have the private name that holds an epoch's images; None if it has."""
    if hasattr(model, "_loss_tracker"):
        return None
    return _lacks("counting images needs", "Model._loss_tracker")


def _lacks(needs: str, name: str) -> str:
    return f"{needs} Keras' private {name}, which Keras {keras.__version__} does not have"


def layers_at_any_depth(model: Any) -> list[Any]:
    """Returns a model's layers, and those inside of them."""
    return list(model._flatten_layers(include_self=False))


def has_value(variable: keras.Variable) -> bool:
    """Whether a variable has been given its first value: not before its layer is built."""
    return variable._value is not None


def images_weighed(model: Any) -> int | None:
    """Returns the epoch's images so far, by which Keras weighs its loss; None where it does not."""
    try:
        return int(np.asarray(model._loss_tracker.count)) or None
    except (AttributeError, TypeError, ValueError):
        return None
