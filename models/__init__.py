"""What is fed: the networks, and whatever model a user names."""

from models.network import Network, Training
from models.networks import MODELS
from models.opening import ModelError, behind, check_name, compiled, image_size, open_model
from models.published import Figure

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
