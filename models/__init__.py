"""What is fed: the networks, and whatever model a user names."""

from models.networks import MODELS, ConvNet
from models.opening import ModelError, behind, check_name, image_size, open_model

__all__ = ["MODELS", "ConvNet", "ModelError", "behind", "check_name", "image_size", "open_model"]
