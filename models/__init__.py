"""The networks of published experiments, and functions that open the model a user names: the public names."""

from unstall.models.catalogue import MODELS
from unstall.models.network import Figure, Network, Training
from unstall.models.opening import ModelError, behind, check_name, compiled, image_size, open_model

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
