"""The operations of the augmentation table, each with the fixed draw that every library applies.

Nothing is random here: all libraries get the same numbers, so that their pictures can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

# Strong enough that each operation is visible on an image of 64 pixels; larger images get the same values.
SHEAR_DEGREES = 20.0
ZOOM_RATIO = 0.7
ROTATION_DEGREES = 30.0
SHIFT_RIGHT_PX, SHIFT_DOWN_PX = 10, 5
BRIGHTNESS_RATIO = 0.2
CONTRAST_RATIO = 1.5
# In a smaller image, the shift would leave too little of the photo.
LEAST_IMAGE_SIZE = 32

Draw = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What is done to one square image.

    Attributes:
      text: a description for people, with numbers.
      draw: returns the numbers for one image, given the image's side in pixels. For a geometric operation these are the
        map from output to input pixels, (x, y, 1) column vectors, 2x3, row by row.
    """

    text: str
    draw: Callable[[int], Draw]


def crop_box(size: int) -> tuple[int, int, int]:
    """Returns top, left and side of the box in pixels; the box is off the middle, so that a mistake would be seen."""
    return size // 8, size // 16, size * 3 // 4


def _shear(size: int) -> Draw:
    return (1.0, -math.tan(math.radians(SHEAR_DEGREES)), 0.0, 0.0, 1.0, 0.0)


def _zoom(size: int) -> Draw:
    offset = (size - 1) / 2 * (1 - ZOOM_RATIO)
    return (ZOOM_RATIO, 0.0, offset, 0.0, ZOOM_RATIO, offset)


def _rotation(size: int) -> Draw:
    cosine, sine = math.cos(math.radians(ROTATION_DEGREES)), math.sin(math.radians(ROTATION_DEGREES))
    centre = (size - 1) / 2
    return (cosine, -sine, centre * (1 - cosine + sine), sine, cosine, centre * (1 - cosine - sine))


def _crop(size: int) -> Draw:
    top, left, _ = crop_box(size)
    return (float(top), float(left))


OPERATIONS: dict[str, Operation] = {
    "none": Operation(text="only hands the image over: what every row pays", draw=lambda size: (0.0,)),
    "flip": Operation(text="left to right", draw=lambda size: (1.0,)),
    "shear": Operation(text=f"x by {SHEAR_DEGREES:g} degrees, about the top row", draw=_shear),
    "zoom": Operation(text=f"shows the middle {ZOOM_RATIO:g} of each side", draw=_zoom),
    "rotation": Operation(text=f"{ROTATION_DEGREES:g} degrees counter-clockwise", draw=_rotation),
    "shift": Operation(
        text=f"{SHIFT_RIGHT_PX} px right, {SHIFT_DOWN_PX} px down",
        draw=lambda size: (1.0, 0.0, -float(SHIFT_RIGHT_PX), 0.0, 1.0, -float(SHIFT_DOWN_PX)),
    ),
    "crop": Operation(text="a box of 3/4 of each side, off the middle, not resized", draw=_crop),
    "brightness": Operation(
        text=f"adds {BRIGHTNESS_RATIO:g} of the range", draw=lambda size: (BRIGHTNESS_RATIO * 255.0,)
    ),
    "contrast": Operation(
        text=f"{CONTRAST_RATIO:g} times, about the mean of each channel", draw=lambda size: (CONTRAST_RATIO,)
    ),
}
GEOMETRIC = ("shear", "zoom", "rotation", "shift")
