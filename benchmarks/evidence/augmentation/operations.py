"""The operations of the augmentation table, each with the fixed draw that every library applies.

Nothing is random here: all libraries get the same numbers, so that a test can compare what they make of an image.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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


# Name -> what returns the numbers for one square image, given its side in pixels. For a geometric operation these are
# the map from output to input pixels, (x, y, 1) column vectors, 2x3, row by row.
OPERATIONS: dict[str, Callable[[int], Draw]] = {
    "none": lambda size: (0.0,),  # only hands the image over: what every row pays
    "flip": lambda size: (1.0,),  # left to right
    "shear": _shear,  # x, about the top row
    "zoom": _zoom,  # shows the middle
    "rotation": _rotation,  # counter-clockwise
    "shift": lambda size: (1.0, 0.0, -float(SHIFT_RIGHT_PX), 0.0, 1.0, -float(SHIFT_DOWN_PX)),
    "crop": _crop,  # a box of 3/4 of each side, not resized
    "brightness": lambda size: (BRIGHTNESS_RATIO * 255.0,),  # adds a part of the range
    "contrast": lambda size: (CONTRAST_RATIO,),  # about the mean of each channel
}
GEOMETRIC = ("shear", "zoom", "rotation", "shift")
