"""Describes an augmentation: crop, shear, zoom and horizontal flip. `draws` draws its random numbers, by NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass

FILL_MODES = ("nearest", "reflect", "constant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """The random numbers that are drawn for each image, whichever library applies them.

    The defaults are those of the well-known Keras cat/dog tutorial: `shear_range=0.2, zoom_range=0.2,
    horizontal_flip=True`. Keras' `ImageDataGenerator` reads that shear as degrees.
    """

    # Degrees; drawn uniformly from [-shear_degrees, shear_degrees].
    shear_degrees: float = 0.2
    # Ratio; each axis has its own draw, uniform in [1 - zoom_range, 1 + zoom_range]. Above 1 the image shrinks.
    zoom_range: float = 0.2
    # Probability of a horizontal flip, 0 to 1.
    flip_probability: float = 0.5
    # What fills pixels outside the image: its edge, its mirror image, or black.
    fill_mode: str = "nearest"
    # Range of the crop's area over the image's area, drawn uniformly; the crop is resized to the output. (1, 1): no
    # crop. torchvision's `RandomResizedCrop` has (0.08, 1).
    crop_area: tuple[float, float] = (1.0, 1.0)
    # Range of the crop's width over its height; the logarithm is drawn uniformly. torchvision's default.
    crop_aspect: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        if not 0 <= self.shear_degrees < 90:
            raise ValueError(
                "`shear_degrees` must be at least 0 and below 90 degrees. "
                f"Received: shear_degrees={self.shear_degrees}."
            )
        if not 0 <= self.zoom_range < 1:
            raise ValueError(f"`zoom_range` must be at least 0 and below 1. Received: zoom_range={self.zoom_range}.")
        if not 0 <= self.flip_probability <= 1:
            raise ValueError(
                f"`flip_probability` must be from 0 to 1. Received: flip_probability={self.flip_probability}."
            )
        if self.fill_mode not in FILL_MODES:
            raise ValueError(
                f"`fill_mode` must be one of {', '.join(FILL_MODES)}. Received: fill_mode={self.fill_mode!r}."
            )
        for name, most in {"crop_area": 1.0, "crop_aspect": math.inf}.items():
            ends = getattr(self, name)
            if len(ends) != 2 or not 0 < ends[0] <= ends[1] <= most or math.isinf(ends[1]):
                upper = " and at most 1" if most == 1 else ""
                raise ValueError(
                    f"`{name}` must be two numbers, the lower first, above 0{upper}. Received: {name}={ends!r}."
                )

    @property
    def crops(self) -> bool:
        """Whether images are cropped."""
        return self.crop_area != (1.0, 1.0)
