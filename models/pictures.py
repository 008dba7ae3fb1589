"""Reads pictures of any format as training reads photos: three channels of 8 bits, EXIF orientation ignored."""

from __future__ import annotations

import os
import warnings
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Refused before decoding: 50 megapixels are 600 MB as float32. The limit of `pipeline.sources`, a test holds that.
MAX_PIXELS = 50_000_000
# Pillow hands these to another program, Ghostscript, which a picture from anywhere had better not reach.
_OTHER_PROGRAMS = {"EPS"}


class PictureError(ValueError):
    """A picture that cannot be read; the message says why."""


def read_picture(path: str) -> NDArray[np.uint8]:
    """Returns (height, width, 3) uint8: the first frame, without alpha, as the file holds it.

    Raises:
      PictureError: if it is no regular file, no picture, broken, or larger than `MAX_PIXELS`.
    """
    if not os.path.isfile(path):
        raise PictureError("not a regular file" if os.path.exists(path) else "does not exist")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large pictures, which are refused below, and of odd metadata
            with Image.open(path, formats=_formats()) as picture:
                width, height = picture.size
                if width * height > MAX_PIXELS:
                    raise PictureError(
                        f"{width}x{height} pixels, over the limit of {MAX_PIXELS // 10**6} megapixels; make it smaller"
                    )
                return _pixels(picture)
    except PictureError:
        raise
    except OSError as error:
        raise PictureError(f"cannot be read: {error.strerror}" if error.errno else _reason(error)) from error
    # Each format's reader raises its own kinds; all mean that the file is broken.
    except Exception as error:
        raise PictureError(f"not a readable picture: {error}") from error


def _reason(error: OSError) -> str:
    return "not a picture" if isinstance(error, Image.UnidentifiedImageError) else f"not a readable picture: {error}"


def _pixels(picture: Image.Image) -> NDArray[np.uint8]:
    if picture.mode.startswith("I;16"):
        # The high byte, as TensorFlow and OpenCV decode 16 bits; Pillow would make white of all above 255.
        grey = (np.asarray(picture) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
    return np.asarray(picture.convert("RGB"))


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in Image.ID if name not in _OTHER_PROGRAMS)
