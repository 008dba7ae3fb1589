"""The networks of published experiments, and functions that open the model a user names: the public names."""

import unstall  # noqa: F401 - from here on, `import models` in a user's file means the user's own package
from models.catalogue import MODELS
from models.network import Figure, Network, Training
from models.opening import ModelError, behind, check_name, compiled, image_size, open_model

__all__ = [
    "MODELS",
    "Figure",
    "ModelError",
    "Network",
    "Training",
    "behind",
    "check_name",
    "compiled",
    "image_size",
    "open_model",
]
