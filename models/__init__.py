"""What is fed: the networks, and whatever model a user names."""

import unstall  # noqa: F401 - from here on, who imports `models` decides whether it is this one
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
