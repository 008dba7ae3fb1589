"""What Keras has no public name for: all private names of Keras that this package uses stand here."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np


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
